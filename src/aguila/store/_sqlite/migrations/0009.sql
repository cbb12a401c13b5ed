-- A run that begins writes as few pages as it can: its first event waits for them. So keys may come back (without
-- AUTOINCREMENT there is no counter to write): what tells a thread from its predecessor is "first". And which runs are
-- open is told by "threads_running" alone; they are few. And a row of the log has its place for a key, so that the log
-- needs no index, and what belongs together is read together.
CREATE TABLE threads_9 (
  key INTEGER PRIMARY KEY,
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  touched INTEGER NOT NULL,
  first INTEGER NOT NULL, -- the number of its first event: 1, unless its id was used before
  last INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  running INTEGER, -- the key of the open run
  UNIQUE (scope, thread_id)
);
INSERT INTO threads_9 (key, scope, thread_id, created_at, updated_at, touched, first, last, bytes, running)
SELECT key, scope, thread_id, created_at, updated_at, touched, first, last, bytes, running FROM threads;
DROP TABLE threads;
ALTER TABLE threads_9 RENAME TO threads;
CREATE INDEX threads_touched ON threads (scope, touched);
CREATE INDEX threads_running ON threads (scope, running) WHERE running IS NOT NULL;

CREATE TABLE runs_9 (
  key INTEGER PRIMARY KEY,
  thread INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  parent_run_id TEXT,
  fingerprint TEXT NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER, -- null while the run is open: it is the thread's last then
  outcome TEXT,
  owner TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  lease_seconds REAL NOT NULL,
  lease_until REAL NOT NULL,
  cancel_requested INTEGER NOT NULL DEFAULT 0, -- 0 (no), 1 (in any case) or 2 (if nobody watches)
  started_at REAL NOT NULL,
  ended_at REAL,
  lock INTEGER, -- the lock file in which the owner held its lock when it became the owner
  UNIQUE (thread, run_id)
);
INSERT INTO runs_9 (key, thread, run_id, parent_run_id, fingerprint, first, last, outcome, owner, epoch, lease_seconds,
  lease_until, cancel_requested, started_at, ended_at, lock)
SELECT key, thread, run_id, parent_run_id, fingerprint, first, last, outcome, owner, epoch, lease_seconds, lease_until,
  cancel_requested, started_at, ended_at, lock FROM runs;
DROP TABLE runs;
ALTER TABLE runs_9 RENAME TO runs;

-- The log: a row is a batch, its events as lines. "place" is the key of the thread, times 2^32, and the number of the
-- last of these events.
CREATE TABLE log_9 (place INTEGER PRIMARY KEY, first INTEGER NOT NULL, events BLOB NOT NULL);
INSERT INTO log_9 (place, first, events) SELECT thread * 4294967296 + last, first, events FROM log ORDER BY 1;
DROP TABLE log;
ALTER TABLE log_9 RENAME TO log;
