-- What each scope holds, and all scopes together, for quotas. A thread counts from the end of its first run, and its
-- bytes count at the end of each run, so that beginning a run and appending to it write nothing here. Each session adds
-- to a row of its own, or nearly so ("slot"), so that sessions do not wait for each other.
ALTER TABLE aguila.threads ADD COLUMN counted bigint; -- the bytes that "usage" counts
CREATE TABLE aguila.usage (
  scope text COLLATE "C" NOT NULL,
  slot integer NOT NULL,
  threads bigint NOT NULL,
  files bigint NOT NULL, -- without the inline files of messages, which count as bytes
  bytes bigint NOT NULL,
  PRIMARY KEY (scope, slot)
) WITH (fillfactor = 60);
CREATE TABLE aguila.total_usage (
  slot integer PRIMARY KEY,
  threads bigint NOT NULL,
  files bigint NOT NULL,
  bytes bigint NOT NULL
) WITH (fillfactor = 60);

-- Count everything again.
CREATE FUNCTION aguila.rebuild_usage() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  LOCK TABLE aguila.threads, aguila.blobs, aguila.usage, aguila.total_usage IN SHARE ROW EXCLUSIVE MODE;
  UPDATE aguila.threads SET counted = bytes WHERE running IS NULL AND counted IS DISTINCT FROM bytes;
  DELETE FROM aguila.usage;
  DELETE FROM aguila.total_usage;
  INSERT INTO aguila.usage (scope, slot, threads, files, bytes)
  SELECT scope, 0, sum(threads), sum(files), sum(bytes) FROM (
    SELECT scope, 1 AS threads, 0 AS files, counted AS bytes FROM aguila.threads WHERE counted IS NOT NULL
    UNION ALL SELECT scope, 0, (blob_id NOT LIKE 'inline-%')::integer, size FROM aguila.blobs
  ) held GROUP BY scope;
  INSERT INTO aguila.total_usage (slot, threads, files, bytes)
  SELECT 0, coalesce(sum(threads), 0), coalesce(sum(files), 0), coalesce(sum(bytes), 0) FROM aguila.usage;
END
$$;
SELECT aguila.rebuild_usage();

CREATE FUNCTION aguila.add_usage(p_scope text, p_threads bigint, p_files bigint, p_bytes bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  mine integer := pg_backend_pid() % 64;
BEGIN
  INSERT INTO aguila.usage AS u (scope, slot, threads, files, bytes)
  VALUES (p_scope, mine, p_threads, p_files, p_bytes)
  ON CONFLICT (scope, slot) DO UPDATE SET threads = u.threads + p_threads, files = u.files + p_files,
    bytes = u.bytes + p_bytes;
  INSERT INTO aguila.total_usage AS u (slot, threads, files, bytes) VALUES (mine, p_threads, p_files, p_bytes)
  ON CONFLICT (slot) DO UPDATE SET threads = u.threads + p_threads, files = u.files + p_files,
    bytes = u.bytes + p_bytes;
  IF p_bytes < 0 THEN -- of a scope that holds nothing any more, remove the rows that no other session is changing
    WITH locked AS (SELECT * FROM aguila.usage WHERE scope = p_scope FOR UPDATE SKIP LOCKED)
    DELETE FROM aguila.usage u USING locked WHERE u.scope = p_scope AND u.slot = locked.slot
      AND (SELECT sum(threads) = 0 AND sum(files) = 0 AND sum(bytes) = 0 FROM locked);
  END IF;
END
$$;

-- Runs at the commit, when the thread has its final size, and the rows of "usage" are locked for a moment only.
CREATE FUNCTION aguila.count_thread() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  t aguila.threads;
BEGIN
  IF TG_OP = 'DELETE' THEN
    PERFORM aguila.add_usage(OLD.scope, -1, 0, -OLD.counted);
    RETURN NULL;
  END IF;
  SELECT * INTO t FROM aguila.threads WHERE key = NEW.key AND running IS NULL AND counted IS DISTINCT FROM bytes;
  IF FOUND THEN
    UPDATE aguila.threads SET counted = bytes WHERE key = t.key;
    PERFORM aguila.add_usage(t.scope, (t.counted IS NULL)::integer, 0, t.bytes - coalesce(t.counted, 0));
  END IF;
  RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER count_thread AFTER INSERT OR UPDATE ON aguila.threads DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (NEW.running IS NULL AND NEW.counted IS DISTINCT FROM NEW.bytes)
EXECUTE FUNCTION aguila.count_thread();
CREATE CONSTRAINT TRIGGER count_removed_thread AFTER DELETE ON aguila.threads DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW WHEN (OLD.counted IS NOT NULL) EXECUTE FUNCTION aguila.count_thread();

CREATE FUNCTION aguila.count_file() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' THEN
    PERFORM aguila.add_usage(OLD.scope, 0, -(OLD.blob_id NOT LIKE 'inline-%')::integer, -OLD.size);
  ELSE
    PERFORM aguila.add_usage(NEW.scope, 0, (NEW.blob_id NOT LIKE 'inline-%')::integer, NEW.size);
  END IF;
  RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER count_file AFTER INSERT OR DELETE ON aguila.blobs DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION aguila.count_file();

-- What a scope holds, with its open runs. Without a scope: what all hold, except for what open runs have written.
CREATE FUNCTION aguila.usage_of(p_scope text) RETURNS TABLE (threads bigint, files bigint, bytes bigint)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
  IF p_scope IS NULL THEN
    RETURN QUERY SELECT coalesce(sum(u.threads), 0)::bigint, coalesce(sum(u.files), 0)::bigint,
      coalesce(sum(u.bytes), 0)::bigint FROM aguila.total_usage u;
    RETURN;
  END IF;
  RETURN QUERY
    SELECT coalesce(sum(x.threads), 0)::bigint, coalesce(sum(x.files), 0)::bigint, coalesce(sum(x.bytes), 0)::bigint
    FROM (
      SELECT u.threads, u.files, u.bytes FROM aguila.usage u WHERE u.scope = p_scope
      UNION ALL SELECT (t.counted IS NULL)::integer, 0, t.bytes - coalesce(t.counted, 0)
      FROM aguila.threads t WHERE t.scope = p_scope AND t.running IS NOT NULL
    ) x;
END
$$;

-- The quota that a run of this scope would exceed, or null; as Quotas.find_exceeded.
CREATE FUNCTION aguila.find_full_quota(
  p_scope text, p_is_new boolean, p_threads_per_scope bigint, p_bytes_per_scope bigint, p_threads bigint, p_bytes bigint
) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  used record;
  total record;
BEGIN
  IF p_threads_per_scope IS NOT NULL OR p_bytes_per_scope IS NOT NULL THEN
    SELECT * INTO used FROM aguila.usage_of(p_scope);
    IF p_is_new AND used.threads >= p_threads_per_scope THEN
      RETURN 'threads_per_scope';
    END IF;
    IF used.bytes >= p_bytes_per_scope THEN
      RETURN 'bytes_per_scope';
    END IF;
  END IF;
  IF p_threads IS NOT NULL OR p_bytes IS NOT NULL THEN
    SELECT * INTO total FROM aguila.usage_of(NULL);
    IF p_is_new AND total.threads >= p_threads THEN
      RETURN 'threads';
    END IF;
    IF total.bytes >= p_bytes THEN
      RETURN 'bytes';
    END IF;
  END IF;
  RETURN NULL;
END
$$;

DROP FUNCTION IF EXISTS aguila.begin_runs;
-- Begin some runs. For each, in order: the keys of its thread and its run, and the number before its first event; or the
-- code of a refusal, and the key of the run or the id of the interrupt that it concerns.
CREATE FUNCTION aguila.begin_runs(
  p_now float8, p_lock bigint,
  p_scope text[], p_thread_id text[], p_run_id text[], p_owner text[], p_seconds float8[], p_fingerprint text[],
  p_parent text[], p_agent text[], p_sent text[], p_token bigint[], p_max_running integer[], p_hash bigint[],
  p_size bigint[], p_body bytea[], p_files bytea[], p_messages bytea[], p_base bigint[], p_depth integer[],
  p_has_waiting boolean[],
  p_waiting_of integer[], p_waiting text[],
  p_claim_of integer[], p_claim text[],
  p_row_of integer[], p_row_count integer[], p_row_events bytea[],
  p_message_of integer[], p_message_digest bytea[], p_message_size integer[], p_message_body bytea[],
  p_message_files bytea[], p_after bigint[],
  p_threads_per_scope bigint[], p_bytes_per_scope bigint[], p_threads bigint[], p_bytes bigint[]
) RETURNS TABLE (code text, thread bigint, run bigint, before bigint, at_time float8, detail text) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  t aguila.threads;
  same aguila.runs;
  is_new boolean;
  total bigint;
  new_key bigint;
  open_runs bigint;
BEGIN
  -- Runs of a scope are counted and begun one after the other. Locks are taken in one order.
  PERFORM pg_advisory_xact_lock(hashtext('aguila.begin'), h)
  FROM (SELECT DISTINCT hashtext(g.scope) AS h FROM unnest(p_scope, p_max_running) AS g(scope, most)
        WHERE g.most IS NOT NULL ORDER BY 1) scopes;
  FOR i IN 1 .. cardinality(p_scope) LOOP
    LOOP -- again if another process creates the same thread meanwhile
      code := NULL; thread := NULL; run := NULL; before := 0; detail := NULL; at_time := aguila.time_of(p_now);
      SELECT * INTO t FROM aguila.threads x WHERE x.scope = p_scope[i] AND x.thread_id = p_thread_id[i] FOR UPDATE;
      is_new := NOT FOUND;
      IF NOT is_new THEN
        thread := t.key;
        before := t.last;
        IF t.agent <> p_agent[i] THEN
          code := 'agent'; detail := t.agent; EXIT;
        END IF;
        SELECT * INTO same FROM aguila.runs x WHERE x.thread = t.key AND x.run_id = p_run_id[i];
        IF FOUND THEN
          run := same.key;
          IF same.token = p_token[i] THEN
            code := 'repeated'; before := same.first - 1; at_time := same.started_at; EXIT;
          END IF;
          code := 'exists'; EXIT;
        END IF;
        IF t.running IS NOT NULL THEN
          code := 'busy'; run := t.running; EXIT;
        END IF;
      END IF;
      IF p_max_running[i] IS NOT NULL THEN
        SELECT count(*) INTO open_runs FROM aguila.threads x WHERE x.scope = p_scope[i] AND x.running IS NOT NULL;
        IF open_runs >= p_max_running[i] THEN
          code := 'many'; run := open_runs; EXIT;
        END IF;
      END IF;
      detail := aguila.find_full_quota(p_scope[i], is_new, p_threads_per_scope[i], p_bytes_per_scope[i], p_threads[i],
        p_bytes[i]);
      IF detail IS NOT NULL THEN
        code := 'quota'; EXIT;
      END IF;
      IF p_after[i] <> before THEN
        code := 'continued'; EXIT;
      END IF;
      IF p_has_waiting[i] AND NOT is_new THEN
        SELECT x.interrupt_id INTO detail FROM aguila.interrupts x
        WHERE x.thread = t.key AND x.status = 'open' AND NOT EXISTS (
          SELECT 1 FROM unnest(p_waiting_of, p_waiting) AS w(run_of, id) WHERE w.run_of = i AND w.id = x.interrupt_id)
        LIMIT 1;
        IF FOUND THEN
          code := 'moved'; EXIT;
        END IF;
      END IF;
      SELECT c.id INTO detail FROM unnest(p_claim_of, p_claim) AS c(run_of, id)
      WHERE c.run_of = i AND NOT EXISTS (
        SELECT 1 FROM aguila.interrupts x WHERE x.thread = t.key AND x.interrupt_id = c.id AND x.status = 'open')
      LIMIT 1;
      IF FOUND THEN
        code := 'taken'; EXIT;
      END IF;
      IF p_base[i] IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM aguila.runs x WHERE x.key = p_base[i] AND x.thread = t.key)
      THEN
        code := 'base'; EXIT; -- the thread was removed since its requests were read
      END IF;
      SELECT coalesce(sum(r.count), 0) INTO total FROM unnest(p_row_of, p_row_count) AS r(run_of, count)
      WHERE r.run_of = i;
      new_key := nextval('aguila.runs_key_seq');
      IF is_new THEN
        DELETE FROM aguila.removed x WHERE x.thread = p_hash[i] RETURNING x.last + 1 INTO before;
        before := coalesce(before, 0);
        INSERT INTO aguila.threads (scope, thread_id, created_at, updated_at, touched, first, last, bytes, running,
          epoch, agent)
        VALUES (p_scope[i], p_thread_id[i], at_time, at_time, nextval('aguila.touches'), before + 1, before + total,
          p_size[i], new_key, 1, p_agent[i])
        ON CONFLICT DO NOTHING RETURNING key INTO thread;
        IF NOT FOUND THEN
          CONTINUE;
        END IF;
      ELSE
        UPDATE aguila.threads SET updated_at = at_time, touched = nextval('aguila.touches'), last = before + total,
          bytes = bytes + p_size[i], running = new_key, epoch = 1
        WHERE key = t.key;
      END IF;
      run := new_key;
      INSERT INTO aguila.runs (key, thread, run_id, parent_run_id, fingerprint, first, owner, epoch, lease_seconds,
        lease_until, started_at, lock, incarnation, token, sent_run_id)
      VALUES (new_key, thread, p_run_id[i], p_parent[i], p_fingerprint[i], before + 1, p_owner[i], 1, p_seconds[i],
        at_time + p_seconds[i], at_time, p_lock, CASE WHEN p_lock IS NOT NULL THEN pg_postmaster_start_time() END,
        p_token[i], p_sent[i]);
      INSERT INTO aguila.inputs (run, base, messages, depth, files, body)
      VALUES (new_key, p_base[i], p_messages[i], p_depth[i], p_files[i], p_body[i]);
      IF i = ANY (p_claim_of) THEN
        UPDATE aguila.interrupts x SET status = 'claimed', claimed_by = p_run_id[i]
        FROM unnest(p_claim_of, p_claim) AS c(run_of, id)
        WHERE c.run_of = i AND x.thread = begin_runs.thread AND x.interrupt_id = c.id;
      END IF;
      INSERT INTO aguila.log (thread, first, last, at, events)
      SELECT begin_runs.thread, begin_runs.before + 1 + sum(r.count) OVER w - r.count,
        begin_runs.before + sum(r.count) OVER w, floor(at_time * 1000)::bigint, r.events
      FROM unnest(p_row_of, p_row_count, p_row_events) WITH ORDINALITY AS r(run_of, count, events, n)
      WHERE r.run_of = i AND r.count > 0 WINDOW w AS (ORDER BY r.n);
      IF i = ANY (p_message_of) THEN
        WITH added AS (
          INSERT INTO aguila.messages (thread, digest, body, files)
          SELECT begin_runs.thread, m.digest, m.body, m.files
          FROM unnest(p_message_of, p_message_digest, p_message_body, p_message_files) AS m(run_of, digest, body, files)
          WHERE m.run_of = i ON CONFLICT DO NOTHING RETURNING digest
        )
        UPDATE aguila.threads x SET bytes = bytes + (
          SELECT coalesce(sum(m.size), 0) FROM unnest(p_message_of, p_message_digest, p_message_size)
            AS m(run_of, digest, size) JOIN added ON added.digest = m.digest WHERE m.run_of = i)
        WHERE x.key = begin_runs.thread;
      END IF;
      EXIT;
    END LOOP;
    RETURN NEXT;
  END LOOP;
END
$$;
