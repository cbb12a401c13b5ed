-- Each function is one call of a client and one transaction: no lock is held while a client is away.
-- A function that changes a thread locks its row first, so that the order of changes is the order of the log.

-- The time that counts: that of the database, unless a test passes another one.
CREATE FUNCTION aguila.time_of(p_now float8) RETURNS float8 LANGUAGE sql VOLATILE AS $$
  SELECT coalesce(p_now, extract(epoch FROM clock_timestamp())::float8)
$$;

-- Whether a process is gone: no session holds its lock, in the server in which its sessions took it.
CREATE FUNCTION aguila.is_gone(p_lock bigint, p_incarnation timestamptz) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT p_lock IS NOT NULL AND p_incarnation = pg_postmaster_start_time() AND NOT EXISTS (
    SELECT 1 FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND l.classid = (p_lock >> 32)::oid AND l.objid = (p_lock & 4294967295)::oid
  )
$$;

-- begin_runs: see 0003_usage.sql.

-- Append batches of several runs and close some of the runs. The first row of the result (n = 0) has the time. The
-- others are the appends that were refused, by their index: "stale" if the run is closed, taken over, or has another last number than expected; "unclaimed" with the id of
-- an interrupt that the run cannot settle.
CREATE FUNCTION aguila.append_events(
  p_now float8,
  p_thread bigint[], p_run bigint[], p_epoch integer[], p_last bigint[], p_count integer[], p_size bigint[],
  p_outcome text[],
  p_row_of integer[], p_row_first bigint[], p_row_last bigint[], p_row_events bytea[],
  p_session_of integer[], p_session bytea[],
  p_settle_of integer[], p_settle text[],
  p_interrupt_of integer[], p_interrupt text[], p_interrupt_body bytea[],
  p_update_of integer[], p_sets_title boolean[], p_title text[], p_archived boolean[], p_sets_metadata boolean[],
  p_metadata bytea[], p_members text[],
  p_projection_of integer[], p_format integer[], p_projection bytea[],
  p_value_of integer[], p_digest bytea[], p_value_size integer[], p_value_files bytea[], p_value bytea[]
) RETURNS TABLE (n integer, code text, detail text, at_time float8) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  unclaimed integer[] := '{}';
  moved integer[];
  i integer;
BEGIN
  n := 0;
  at_time := aguila.time_of(p_now);
  RETURN NEXT;
  IF cardinality(p_settle_of) > 0 THEN
    -- Only the open run of a thread changes its interrupts, so this stays true until the rows below are locked.
    FOR n, detail IN
      SELECT DISTINCT ON (s.of_run) s.of_run, s.id
      FROM unnest(p_settle_of, p_settle) WITH ORDINALITY AS s(of_run, id, at)
      JOIN aguila.runs r ON r.key = p_run[s.of_run]
      LEFT JOIN aguila.interrupts x ON x.thread = r.thread AND x.interrupt_id = s.id
      WHERE x.claimed_by IS DISTINCT FROM r.run_id AND r.outcome IS NULL AND r.epoch = p_epoch[s.of_run]
      ORDER BY s.of_run, s.at
    LOOP
      unclaimed := unclaimed || n;
      code := 'unclaimed';
      RETURN NEXT;
    END LOOP;
  END IF;
  WITH changed AS (
    UPDATE aguila.threads x SET last = g.last + g.count, updated_at = at_time, bytes = x.bytes + g.size,
      running = CASE WHEN g.outcome IS NULL THEN x.running END,
      touched = CASE WHEN g.outcome IS NULL THEN x.touched ELSE nextval('aguila.touches') END
    FROM unnest(p_thread, p_run, p_epoch, p_last, p_count, p_size, p_outcome)
      WITH ORDINALITY AS g(thread, run, epoch, last, count, size, outcome, n)
    WHERE x.key = g.thread AND x.running = g.run AND x.epoch = g.epoch AND x.last = g.last AND g.n <> ALL (unclaimed)
    RETURNING g.n::integer AS n
  )
  SELECT coalesce(array_agg(changed.n), '{}') INTO moved FROM changed;
  INSERT INTO aguila.log (thread, first, last, at, events)
  SELECT p_thread[l.of_run], l.first, l.last, floor(at_time * 1000)::bigint, l.events
  FROM unnest(p_row_of, p_row_first, p_row_last, p_row_events) AS l(of_run, first, last, events)
  WHERE l.of_run = ANY (moved);
  UPDATE aguila.runs x SET lease_until = at_time + x.lease_seconds -- expired, but not taken over
  FROM unnest(moved) AS m(n) WHERE x.key = p_run[m.n] AND x.lease_until <= at_time AND p_outcome[m.n] IS NULL;
  FOR i IN SELECT m.n FROM unnest(moved) AS m(n) WHERE p_outcome[m.n] IS NOT NULL LOOP
    UPDATE aguila.runs SET outcome = p_outcome[i], last = p_last[i] + p_count[i], ended_at = at_time
    WHERE key = p_run[i];
    DELETE FROM aguila.viewers x WHERE x.run = p_run[i];
    UPDATE aguila.interrupts x SET
      status = CASE WHEN s.id IS NULL THEN 'open' ELSE 'settled' END,
      claimed_by = CASE WHEN s.id IS NULL THEN NULL ELSE x.claimed_by END
    FROM aguila.interrupts y LEFT JOIN unnest(p_settle_of, p_settle) AS s(of_run, id)
      ON s.of_run = i AND s.id = y.interrupt_id
    WHERE x.key = y.key AND y.thread = p_thread[i] AND y.status = 'claimed'
      AND y.claimed_by = (SELECT r.run_id FROM aguila.runs r WHERE r.key = p_run[i]);
    IF i = ANY (p_interrupt_of) THEN
      WITH old AS (
        DELETE FROM aguila.interrupts x USING unnest(p_interrupt_of, p_interrupt) AS g(of_run, id)
        WHERE g.of_run = i AND x.thread = p_thread[i] AND x.interrupt_id = g.id RETURNING octet_length(x.body) AS size
      )
      UPDATE aguila.threads x SET bytes = bytes
        + (SELECT sum(octet_length(g.body)) FROM unnest(p_interrupt_of, p_interrupt_body) AS g(of_run, body)
           WHERE g.of_run = i)
        - (SELECT coalesce(sum(old.size), 0) FROM old)
      WHERE x.key = p_thread[i];
      INSERT INTO aguila.interrupts (scope, thread, interrupt_id, run_id, status, body)
      SELECT x.scope, x.key, g.id, (SELECT r.run_id FROM aguila.runs r WHERE r.key = p_run[i]), 'open', g.body
      FROM unnest(p_interrupt_of, p_interrupt, p_interrupt_body) WITH ORDINALITY AS g(of_run, id, body, at)
      JOIN aguila.threads x ON x.key = p_thread[i]
      WHERE g.of_run = i ORDER BY g.at;
    END IF;
    IF i = ANY (p_session_of) THEN
      UPDATE aguila.threads x SET bytes = bytes
        + (SELECT octet_length(g.body) FROM unnest(p_session_of, p_session) AS g(of_run, body) WHERE g.of_run = i)
        - coalesce((SELECT octet_length(y.body) FROM aguila.sessions y WHERE y.thread = x.key), 0)
      WHERE x.key = p_thread[i];
      INSERT INTO aguila.sessions (thread, body)
      SELECT p_thread[i], g.body FROM unnest(p_session_of, p_session) AS g(of_run, body) WHERE g.of_run = i
      ON CONFLICT (thread) DO UPDATE SET body = excluded.body;
    END IF;
    IF i = ANY (p_update_of) THEN
      PERFORM aguila.update_details(p_thread[i], g.sets_title, g.title, g.archived, g.sets_metadata, g.metadata,
        g.members)
      FROM unnest(p_update_of, p_sets_title, p_title, p_archived, p_sets_metadata, p_metadata, p_members)
        AS g(of_run, sets_title, title, archived, sets_metadata, metadata, members) WHERE g.of_run = i;
    END IF;
    IF i = ANY (p_projection_of) THEN
      PERFORM aguila.write_projection(p_thread[i], p_run[i], g.format, g.body,
        ARRAY(SELECT v.digest FROM unnest(p_value_of, p_digest) AS v(of_run, digest) WHERE v.of_run = i),
        ARRAY(SELECT v.size FROM unnest(p_value_of, p_value_size) AS v(of_run, size) WHERE v.of_run = i),
        ARRAY(SELECT v.files FROM unnest(p_value_of, p_value_files) AS v(of_run, files) WHERE v.of_run = i),
        ARRAY(SELECT v.body FROM unnest(p_value_of, p_value) AS v(of_run, body) WHERE v.of_run = i))
      FROM unnest(p_projection_of, p_format, p_projection) AS g(of_run, format, body) WHERE g.of_run = i;
    END IF;
  END LOOP;
  RETURN QUERY SELECT g.n::integer, 'stale'::text, NULL::text, NULL::float8 FROM generate_subscripts(p_thread, 1) AS g(n)
    WHERE g.n <> ALL (moved) AND g.n <> ALL (unclaimed);
END
$$;

-- Change the title, the archived flag and the metadata of a thread, whose row is locked.
CREATE FUNCTION aguila.update_details(
  p_thread bigint, p_sets_title boolean, p_title text, p_archived boolean, p_sets_metadata boolean, p_metadata bytea,
  p_members text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  old aguila.details;
BEGIN
  SELECT * INTO old FROM aguila.details WHERE thread = p_thread;
  INSERT INTO aguila.details (thread, title, metadata, members)
  VALUES (p_thread, CASE WHEN p_sets_title THEN p_title ELSE old.title END,
    CASE WHEN p_sets_metadata THEN p_metadata ELSE old.metadata END,
    CASE WHEN p_sets_metadata THEN p_members::bigint[] ELSE coalesce(old.members, '{}') END)
  ON CONFLICT (thread) DO UPDATE SET title = excluded.title, metadata = excluded.metadata, members = excluded.members;
  UPDATE aguila.threads SET archived = coalesce(p_archived, archived), bytes = bytes
    + CASE WHEN p_sets_title
        THEN coalesce(octet_length(convert_to(p_title, 'UTF8')), 0)
          - coalesce(octet_length(convert_to(old.title, 'UTF8')), 0) ELSE 0 END
    + CASE WHEN p_sets_metadata
        THEN coalesce(octet_length(p_metadata), 0) - coalesce(octet_length(old.metadata), 0) ELSE 0 END
  WHERE key = p_thread;
END
$$;

-- Store the projection of a run, whose thread is locked.
CREATE FUNCTION aguila.write_projection(
  p_thread bigint, p_run bigint, p_format integer, p_body bytea, p_digests bytea[], p_sizes integer[], p_files bytea[],
  p_bodies bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  grown bigint := octet_length(p_body);
BEGIN
  grown := grown - coalesce((SELECT octet_length(body) FROM aguila.projections WHERE run = p_run), 0);
  INSERT INTO aguila.projections (run, format, body) VALUES (p_run, p_format, p_body)
  ON CONFLICT (run) DO UPDATE SET format = excluded.format, body = excluded.body;
  WITH added AS (
    INSERT INTO aguila.projected_values (thread, digest, files, body)
    SELECT p_thread, g.digest, g.files, g.body FROM unnest(p_digests, p_files, p_bodies) AS g(digest, files, body)
    ON CONFLICT DO NOTHING RETURNING digest
  )
  SELECT grown + coalesce(sum(g.size), 0) INTO grown
  FROM unnest(p_digests, p_sizes) AS g(digest, size) JOIN added ON added.digest = g.digest;
  UPDATE aguila.threads SET bytes = bytes + grown WHERE key = p_thread;
END
$$;

-- Store the projection of a closed run; ignore any other run.
CREATE FUNCTION aguila.save_projection(
  p_scope text, p_thread_id text, p_run_id text, p_format integer, p_body bytea, p_digests bytea[], p_sizes integer[],
  p_files bytea[], p_bodies bytea[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  t aguila.threads;
BEGIN
  SELECT * INTO t FROM aguila.threads WHERE scope = p_scope AND thread_id = p_thread_id FOR UPDATE;
  PERFORM aguila.write_projection(t.key, r.key, p_format, p_body, p_digests, p_sizes, p_files, p_bodies)
  FROM aguila.runs r WHERE r.thread = t.key AND r.run_id = p_run_id AND r.outcome IS NOT NULL;
END
$$;

-- Replace the events of a closed run by one row. The result is true if the run was not compacted before.
CREATE FUNCTION aguila.compact_run(
  p_scope text, p_thread_id text, p_run_id text, p_first bigint, p_last bigint, p_count integer, p_events bytea
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  t aguila.threads;
  old_size bigint;
  old_at bigint;
BEGIN
  SELECT * INTO t FROM aguila.threads WHERE scope = p_scope AND thread_id = p_thread_id FOR UPDATE;
  UPDATE aguila.runs SET compacted = true
  WHERE thread = t.key AND run_id = p_run_id AND first = p_first AND last = p_last AND NOT compacted;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  IF p_count <= p_last - p_first THEN
    SELECT sum(octet_length(events)), max(at) INTO old_size, old_at FROM aguila.log
    WHERE thread = t.key AND last BETWEEN p_first AND p_last;
    DELETE FROM aguila.log WHERE thread = t.key AND last BETWEEN p_first AND p_last;
    INSERT INTO aguila.log (thread, last, first, at, compacted, events)
    VALUES (t.key, p_last, p_last - p_count + 1, old_at, p_first, p_events);
    UPDATE aguila.threads SET bytes = bytes + octet_length(p_events) - old_size WHERE key = t.key;
  END IF;
  RETURN true;
END
$$;

-- Give a run to a new owner if its lease has expired or its owner is gone. The result is empty otherwise.
CREATE FUNCTION aguila.take_over(
  p_now float8, p_lock bigint, p_scope text, p_thread_id text, p_run_id text, p_epoch integer, p_old_owner text,
  p_owner text, p_seconds float8
) RETURNS TABLE (thread bigint, run bigint, last bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  at_time float8;
  t aguila.threads;
  r aguila.runs;
BEGIN
  SELECT * INTO t FROM aguila.threads x WHERE x.scope = p_scope AND x.thread_id = p_thread_id FOR UPDATE;
  SELECT * INTO r FROM aguila.runs x WHERE x.key = t.running FOR UPDATE;
  at_time := aguila.time_of(p_now);
  IF r.run_id = p_run_id AND r.epoch = p_epoch AND r.owner = p_old_owner
    AND (r.lease_until <= at_time OR aguila.is_gone(r.lock, r.incarnation))
  THEN
    UPDATE aguila.threads SET epoch = p_epoch + 1 WHERE key = t.key;
    UPDATE aguila.runs SET owner = p_owner, epoch = p_epoch + 1, lease_seconds = p_seconds,
      lease_until = at_time + p_seconds, lock = p_lock,
      incarnation = CASE WHEN p_lock IS NOT NULL THEN pg_postmaster_start_time() END
    WHERE key = r.key;
    UPDATE aguila.interrupts x SET status = 'open', claimed_by = NULL
    WHERE x.thread = t.key AND x.claimed_by = p_run_id AND x.status = 'claimed';
    RETURN QUERY SELECT t.key, r.key, t.last;
  END IF;
END
$$;

-- Settle interrupts that a run has claimed. The result is null, or the id of one that it has not claimed.
CREATE FUNCTION aguila.settle_interrupts(p_thread bigint, p_run bigint, p_epoch integer, p_ids text[])
RETURNS TABLE (is_stale boolean, unclaimed text) LANGUAGE plpgsql AS $$
DECLARE
  r aguila.runs;
BEGIN
  PERFORM 1 FROM aguila.threads x WHERE x.key = p_thread AND x.running = p_run AND x.epoch = p_epoch FOR UPDATE;
  is_stale := NOT FOUND;
  IF NOT is_stale THEN
    SELECT * INTO r FROM aguila.runs x WHERE x.key = p_run;
    SELECT g.id INTO unclaimed FROM unnest(p_ids) AS g(id) WHERE NOT EXISTS (
      SELECT 1 FROM aguila.interrupts x
      WHERE x.thread = p_thread AND x.interrupt_id = g.id AND x.claimed_by = r.run_id) LIMIT 1;
    IF NOT FOUND THEN
      UPDATE aguila.interrupts x SET status = 'settled' WHERE x.thread = p_thread AND x.interrupt_id = ANY (p_ids);
    END IF;
  END IF;
  RETURN NEXT;
END
$$;

-- Record the result of an effect unless it has one. The result is false if the lease is stale.
CREATE FUNCTION aguila.record_effect(
  p_thread bigint, p_run bigint, p_epoch integer, p_root text, p_name text, p_value bytea
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM aguila.threads x WHERE x.key = p_thread AND x.running = p_run AND x.epoch = p_epoch FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO aguila.effects (thread, root_run_id, name, value) VALUES (p_thread, p_root, p_name, p_value)
  ON CONFLICT DO NOTHING;
  IF FOUND THEN
    UPDATE aguila.threads SET bytes = bytes + octet_length(p_value) WHERE key = p_thread;
  END IF;
  RETURN true;
END
$$;

-- Remove a thread without an open run: its row now, so that its id is free, and the rest by "empty_trash". Also release
-- its files. The result is the key of the thread (null if only files were stored for it), and its open run.
CREATE FUNCTION aguila.remove_thread(p_scope text, p_thread_id text, p_hash bigint)
RETURNS TABLE (is_found boolean, running bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  t aguila.threads;
  held bigint[];
BEGIN
  SELECT * INTO t FROM aguila.threads x WHERE x.scope = p_scope AND x.thread_id = p_thread_id FOR UPDATE;
  is_found := FOUND;
  running := t.running;
  IF running IS NULL THEN
    IF is_found THEN
      INSERT INTO aguila.trash (thread) VALUES (t.key);
      INSERT INTO aguila.removed (thread, last) VALUES (p_hash, t.last)
      ON CONFLICT (thread) DO UPDATE SET last = greatest(removed.last, excluded.last);
      DELETE FROM aguila.details WHERE thread = t.key;
      DELETE FROM aguila.interrupts WHERE thread = t.key;
      DELETE FROM aguila.threads WHERE key = t.key;
    END IF;
    WITH released AS (
      DELETE FROM aguila.holds x WHERE x.scope = p_scope AND x.thread_id = p_thread_id RETURNING x.blob
    )
    SELECT array_agg(blob) INTO held FROM released;
    is_found := is_found OR held IS NOT NULL;
    DELETE FROM aguila.blobs b WHERE b.key = ANY (held) AND NOT b.kept
      AND NOT EXISTS (SELECT 1 FROM aguila.holds h WHERE h.blob = b.key);
    DELETE FROM aguila.blob_parts p WHERE p.blob = ANY (held)
      AND NOT EXISTS (SELECT 1 FROM aguila.blobs b WHERE b.key = p.blob);
  END IF;
  RETURN NEXT;
END
$$;

-- Delete some rows of removed threads; return whether more are left. Rows that another process deletes are skipped.
CREATE FUNCTION aguila.empty_trash(p_rows integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  one bigint;
BEGIN
  SELECT thread INTO one FROM aguila.trash ORDER BY thread LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM aguila.log WHERE thread = one AND last IN (
    SELECT last FROM aguila.log WHERE thread = one ORDER BY last LIMIT p_rows);
  IF FOUND THEN
    RETURN true;
  END IF;
  DELETE FROM aguila.messages WHERE thread = one;
  DELETE FROM aguila.effects WHERE thread = one;
  DELETE FROM aguila.sessions WHERE thread = one;
  DELETE FROM aguila.projected_values WHERE thread = one;
  DELETE FROM aguila.inputs WHERE run IN (SELECT key FROM aguila.runs WHERE thread = one);
  DELETE FROM aguila.projections WHERE run IN (SELECT key FROM aguila.runs WHERE thread = one);
  DELETE FROM aguila.runs WHERE thread = one;
  DELETE FROM aguila.trash WHERE thread = one;
  RETURN true;
END
$$;
