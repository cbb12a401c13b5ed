-- A thread. "touched" orders the threads of a scope by their last change; it is a counter, since clocks can step back.
-- AUTOINCREMENT: the key of a deleted thread must not come back, or a follower could take the new thread for the old one.
CREATE TABLE threads (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  touched INTEGER NOT NULL,
  last INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  running INTEGER, -- the key of the open run
  UNIQUE (scope, thread_id)
);
CREATE INDEX threads_touched ON threads (scope, touched);

-- A run. "last" is null while the run is open: it is the thread's last then.
CREATE TABLE runs (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  thread INTEGER NOT NULL,
  run_id TEXT NOT NULL,
  parent_run_id TEXT,
  fingerprint TEXT NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER,
  outcome TEXT,
  owner TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  lease_seconds REAL NOT NULL,
  lease_until REAL NOT NULL,
  cancel_requested INTEGER NOT NULL DEFAULT 0,
  started_at REAL NOT NULL,
  ended_at REAL,
  UNIQUE (thread, run_id)
);
CREATE INDEX runs_open ON runs (lease_until) WHERE outcome IS NULL;

-- Apart from the runs, because an input can be large, and SQLite rewrites a whole row to change a number in it.
CREATE TABLE inputs (run INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE sessions (thread INTEGER PRIMARY KEY, body BLOB NOT NULL);

-- The log: a row is a batch, its events as lines.
CREATE TABLE log (
  thread INTEGER NOT NULL,
  first INTEGER NOT NULL,
  last INTEGER NOT NULL,
  events BLOB NOT NULL
);
CREATE UNIQUE INDEX log_last ON log (thread, last);

CREATE TABLE interrupts (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  thread INTEGER NOT NULL,
  interrupt_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  status TEXT NOT NULL,
  claimed_by TEXT,
  body BLOB NOT NULL,
  UNIQUE (thread, interrupt_id)
);

CREATE TABLE effects (
  thread INTEGER NOT NULL,
  root_run_id TEXT NOT NULL,
  name TEXT NOT NULL,
  value BLOB NOT NULL,
  UNIQUE (thread, root_run_id, name)
);

-- Files. "kept": stored without a thread at least once, so it does not go away with one.
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
-- By thread id and not by key: a file may be stored before the first run makes its thread.
CREATE TABLE holds (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  blob INTEGER NOT NULL,
  UNIQUE (scope, thread_id, blob)
);
CREATE INDEX holds_blob ON holds (blob);

-- Processes that want to hear of changes: a datagram with their token to this loopback port.
CREATE TABLE peers (token TEXT PRIMARY KEY, port INTEGER NOT NULL);

-- Written by health checks.
CREATE TABLE checks (key INTEGER PRIMARY KEY CHECK (key = 1), at REAL NOT NULL);
