ALTER TABLE threads ADD COLUMN counted INTEGER;
CREATE TABLE usage (
  scope TEXT PRIMARY KEY, -- x'' (no text) is all scopes together
  threads INTEGER NOT NULL,
  files INTEGER NOT NULL, -- without the inline files of messages, which count as bytes
  bytes INTEGER NOT NULL
) WITHOUT ROWID;
UPDATE threads SET counted = bytes WHERE running IS NULL;
INSERT INTO usage (scope, threads, files, bytes)
  SELECT scope, sum(threads), sum(files), sum(bytes) FROM (
    SELECT scope, 1 AS threads, 0 AS files, counted AS bytes FROM threads WHERE counted IS NOT NULL
    UNION ALL SELECT scope, 0, blob_id NOT LIKE 'inline-%', size FROM blobs
  ) GROUP BY scope;
INSERT INTO usage (scope, threads, files, bytes)
  SELECT x'', coalesce(sum(threads), 0), coalesce(sum(files), 0), coalesce(sum(bytes), 0) FROM usage;
CREATE TRIGGER count_new_thread AFTER INSERT ON threads WHEN NEW.running IS NULL BEGIN
  UPDATE threads SET counted = bytes WHERE key = NEW.key;
  INSERT INTO usage (scope, threads, files, bytes) VALUES (NEW.scope, 1, 0, NEW.bytes), (x'', 1, 0, NEW.bytes)
  ON CONFLICT (scope) DO UPDATE SET threads = threads + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER count_thread AFTER UPDATE OF bytes, running ON threads
WHEN NEW.running IS NULL AND NEW.bytes IS NOT NEW.counted BEGIN
  UPDATE threads SET counted = bytes WHERE key = NEW.key;
  INSERT INTO usage (scope, threads, files, bytes) VALUES
    (NEW.scope, NEW.counted IS NULL, 0, NEW.bytes - coalesce(NEW.counted, 0)),
    (x'', NEW.counted IS NULL, 0, NEW.bytes - coalesce(NEW.counted, 0))
  ON CONFLICT (scope) DO UPDATE SET threads = threads + excluded.threads, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER count_removed_thread AFTER DELETE ON threads WHEN OLD.counted IS NOT NULL BEGIN
  UPDATE usage SET threads = threads - 1, bytes = bytes - OLD.counted WHERE scope IN (OLD.scope, x'');
  DELETE FROM usage WHERE scope = OLD.scope AND (threads, files, bytes) = (0, 0, 0);
END;
CREATE TRIGGER count_file AFTER INSERT ON blobs BEGIN
  INSERT INTO usage (scope, threads, files, bytes) VALUES
    (NEW.scope, 0, NEW.blob_id NOT LIKE 'inline-%', NEW.size), (x'', 0, NEW.blob_id NOT LIKE 'inline-%', NEW.size)
  ON CONFLICT (scope) DO UPDATE SET files = files + excluded.files, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER count_removed_file AFTER DELETE ON blobs BEGIN
  UPDATE usage SET files = files - (OLD.blob_id NOT LIKE 'inline-%'), bytes = bytes - OLD.size
  WHERE scope IN (OLD.scope, x'');
  DELETE FROM usage WHERE scope = OLD.scope AND (threads, files, bytes) = (0, 0, 0);
END;
