-- One conversation.
CREATE TABLE threads (
  key INTEGER PRIMARY KEY,
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  touched INTEGER NOT NULL, -- orders the threads of a scope by the last begin or end of a run; a counter, since clocks can step back
  first INTEGER NOT NULL, -- sequence number of the first event: 1, unless the id was used before
  last INTEGER NOT NULL, -- sequence number of the newest event
  bytes INTEGER NOT NULL,
  running INTEGER, -- key of the open run
  agent TEXT NOT NULL DEFAULT 'default',
  archived INTEGER NOT NULL DEFAULT 0,
  counted INTEGER, -- the bytes that "usage" counts; null until the first run has ended
  UNIQUE (scope, thread_id)
);
CREATE INDEX threads_touched ON threads (scope, touched);
-- For lists of archived threads, and of the threads of one of several agents. The usual thread is in neither, since
-- every run changes "touched" twice.
CREATE INDEX threads_archived ON threads (scope, touched) WHERE archived = 1;
CREATE INDEX threads_agent ON threads (scope, agent, touched) WHERE agent <> 'default';
-- Covers the count of running runs in a scope, which every "begin" needs.
CREATE INDEX threads_running ON threads (scope, running) WHERE running IS NOT NULL;

-- Title and metadata are not columns of "threads", because every append rewrites the row of its thread.
CREATE TABLE details (thread INTEGER PRIMARY KEY, title TEXT, metadata BLOB);
-- The members of the metadata, to find threads by them. "value" is 's' and the text of a string, '' for other values.
CREATE TABLE metadata_members (
  scope TEXT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  thread INTEGER NOT NULL,
  PRIMARY KEY (scope, name, value, thread)
) WITHOUT ROWID;

-- No AUTOINCREMENT here or in "threads": its counter would be one more page to write when a run begins.
CREATE TABLE runs (
  key INTEGER PRIMARY KEY,
  thread INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  parent_run_id TEXT,
  fingerprint TEXT NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER, -- null while the run is open; threads.last applies then
  outcome TEXT,
  owner TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  lease_seconds REAL NOT NULL,
  lease_until REAL NOT NULL,
  cancel_requested INTEGER NOT NULL DEFAULT 0, -- 0: no, 1: always, 2: if the run has no viewers
  started_at REAL NOT NULL,
  ended_at REAL,
  lock INTEGER, -- inode of the lock file in which the owner held its lock; null if it held none
  sent_run_id TEXT, -- the run id of the request, if it is another one
  compacted INTEGER NOT NULL DEFAULT 0,
  UNIQUE (thread, run_id)
);

-- Inputs and sessions can be large, and SQLite rewrites a whole row to change one number in it.
-- An input is the request without its messages, or the whole request if "messages" is null. "messages" is the list of
-- message digests, as a change of the list of the run "base"; see store/run_inputs.py. "files" has the places of inline
-- files in the body.
CREATE TABLE inputs (
  run INTEGER PRIMARY KEY,
  base INTEGER,
  messages BLOB,
  depth INTEGER, -- how many changes lead to a list that is stored whole
  files BLOB,
  body BLOB NOT NULL
);
-- The messages of requests, once per thread, by a digest of their JSON. This table has row ids, and so has
-- "projected_values": in a table WITHOUT ROWID, SQLite reads a whole large row for each key that it compares.
CREATE TABLE messages (
  thread INTEGER NOT NULL,
  digest BLOB NOT NULL,
  body BLOB NOT NULL,
  files BLOB,
  PRIMARY KEY (thread, digest)
);
CREATE TABLE sessions (thread INTEGER PRIMARY KEY, body BLOB NOT NULL);

-- The thread after each closed run, as the server computed it; the server knows what "body" means. It refers to the
-- values, which are messages and states, once per thread, by a digest of their JSON.
CREATE TABLE projections (run INTEGER PRIMARY KEY, format INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE projected_values (
  thread INTEGER NOT NULL,
  digest BLOB NOT NULL,
  files BLOB, -- the places of inline files in the body
  body BLOB NOT NULL,
  PRIMARY KEY (thread, digest)
);

-- The log. A row is a batch with one event per line. "place" is threads.key * 2^32 + the number of the last event, so
-- that the log needs no index and the events of a thread are stored together. "at" is the time of the append in
-- milliseconds; 0 if an earlier schema did not store it.
CREATE TABLE log (
  place INTEGER PRIMARY KEY,
  first INTEGER NOT NULL,
  at INTEGER NOT NULL DEFAULT 0,
  token TEXT NOT NULL DEFAULT '', -- of the run and epoch that appended it; see store/cursors.py
  compacted INTEGER NOT NULL DEFAULT 0, -- 1: all that is left of a run, with the last numbers of its range
  events BLOB NOT NULL
);

-- The last sequence number of each removed thread, by a hash of its scope and id. A new thread with that id starts
-- above it, so that an old cursor is never valid for the new thread.
CREATE TABLE removed (thread INTEGER PRIMARY KEY, last INTEGER NOT NULL);

-- The scope is repeated here so that an interrupt is found by one lookup without its thread.
CREATE TABLE interrupts (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  thread INTEGER NOT NULL,
  interrupt_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  status TEXT NOT NULL,
  claimed_by TEXT,
  body BLOB NOT NULL,
  scope TEXT NOT NULL DEFAULT '',
  UNIQUE (thread, interrupt_id)
);
CREATE INDEX interrupts_scope ON interrupts (scope, interrupt_id);

CREATE TABLE effects (
  thread INTEGER NOT NULL,
  root_run_id TEXT NOT NULL,
  name TEXT NOT NULL,
  value BLOB NOT NULL,
  UNIQUE (thread, root_run_id, name)
);

-- Processes other than the owner that have viewers of an open run.
CREATE TABLE viewers (
  run INTEGER NOT NULL,
  viewer TEXT NOT NULL, -- name of the process
  until REAL NOT NULL, -- when the entry expires, or when the last viewer left
  seconds REAL NOT NULL, -- for how long the entry was made
  lock INTEGER, -- as runs.lock
  PRIMARY KEY (run, viewer)
) WITHOUT ROWID;

-- Files. "kept": stored at least once without a thread, so no thread's removal deletes it.
CREATE TABLE blobs (
  key INTEGER PRIMARY KEY,
  scope TEXT NOT NULL,
  blob_id TEXT NOT NULL,
  media_type TEXT NOT NULL,
  filename TEXT,
  size INTEGER NOT NULL,
  created_at REAL NOT NULL,
  kept INTEGER NOT NULL,
  data BLOB NOT NULL,
  UNIQUE (scope, blob_id)
);
-- Which threads hold a file. By thread id and not by key: a file may be stored before the first run of its thread.
CREATE TABLE holds (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  blob INTEGER NOT NULL,
  UNIQUE (scope, thread_id, blob)
);
CREATE INDEX holds_blob ON holds (blob);

-- Processes that receive wake-ups: a loopback port, and the token that a datagram must carry.
CREATE TABLE peers (token TEXT PRIMARY KEY, port INTEGER NOT NULL);

-- One row that health checks write, as large as a small run: one page may fit where a run does not.
CREATE TABLE checks (key INTEGER PRIMARY KEY CHECK (key = 1), at REAL NOT NULL, body BLOB);

-- What each scope holds, and all scopes together, for quotas. A thread counts from the end of its first run, and its
-- bytes count at the end of each run, so that beginning a run and appending to it write nothing here.
CREATE TABLE usage (
  scope TEXT PRIMARY KEY, -- x'' (no text) is all scopes together
  threads INTEGER NOT NULL,
  files INTEGER NOT NULL, -- without the inline files of messages, which count as bytes
  bytes INTEGER NOT NULL
) WITHOUT ROWID;
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
