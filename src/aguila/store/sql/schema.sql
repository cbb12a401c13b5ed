-- The schema of every SQL store. KEY, INT, REAL, TEXT, BLOB and FLAG are the types of each database (schema.py). Times
-- are seconds since the Unix epoch; "at" is in milliseconds.

-- One conversation. Every write updates its row, and no index holds a column that such an update changes.
CREATE TABLE aguila.threads (
  key KEY,
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  agent TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  position INT NOT NULL, -- orders the threads of a scope by the last begin or end of a run; a counter: clocks step back
  first INT NOT NULL, -- number of the first event: 1, unless a removed thread had the id
  last INT NOT NULL, -- number of the newest event
  bytes INT NOT NULL,
  counted INT, -- the bytes that "usage" counts; null until the first run has ended
  running INT, -- key of the open run
  epoch INT NOT NULL, -- epoch of the open run: this row alone decides whether a write is stale
  archived FLAG NOT NULL DEFAULT 0,
  UNIQUE (scope, thread_id)
);
CREATE INDEX threads_position ON aguila.threads (scope, position);
-- The usual thread is in neither of these, since every run changes "position" twice.
CREATE INDEX threads_archived ON aguila.threads (scope, position) WHERE archived = 1;
CREATE INDEX threads_agent ON aguila.threads (scope, agent, position) WHERE agent <> 'default';
-- Covers the count of open runs in a scope, which every "begin" needs.
CREATE INDEX threads_running ON aguila.threads (scope, running) WHERE running IS NOT NULL;

-- Not columns of "threads", because every write rewrites the row of its thread.
CREATE TABLE aguila.details (thread INT PRIMARY KEY, title TEXT, metadata BLOB, session BLOB);
-- The metadata of threads by a hash of the scope and a name, and of the scope, a name and a value.
CREATE TABLE aguila.members (member INT NOT NULL, thread INT NOT NULL, PRIMARY KEY (member, thread));
CREATE INDEX members_thread ON aguila.members (thread);

-- One run, with its request and its turn. The large columns are the last ones.
CREATE TABLE aguila.runs (
  key KEY,
  thread INT NOT NULL,
  number INT NOT NULL, -- 1 for the first run of the thread
  run_id TEXT NOT NULL,
  parent_run_id TEXT,
  sent_run_id TEXT, -- the run id of the request, if it is another one
  fingerprint TEXT NOT NULL,
  first INT NOT NULL,
  last INT, -- null while the run is open: threads.last applies
  outcome TEXT,
  owner TEXT NOT NULL,
  lock TEXT, -- by which the death of the owner is found; null if it holds none
  token TEXT NOT NULL, -- of its lease; see cursors.py
  epoch INT NOT NULL,
  lease_seconds REAL NOT NULL,
  lease_until REAL NOT NULL,
  cancel FLAG NOT NULL DEFAULT 0, -- 0: no, 1: always, 2: if the run has no viewers
  started_at REAL NOT NULL,
  ended_at REAL,
  compacted FLAG NOT NULL DEFAULT 0,
  format INT, -- of "turn"
  launch BLOB,
  request BLOB NOT NULL, -- see contents.py
  list BLOB, -- the digests of its messages, as a change of the list of the run with contents.base_number(number)
  turn BLOB,
  UNIQUE (thread, run_id),
  UNIQUE (thread, number)
);
CREATE INDEX runs_ended ON aguila.runs (ended_at) WHERE outcome IS NOT NULL AND compacted = 0;

-- JSON values and inline files, once per thread, by their digests, in parts of 1 MiB.
CREATE TABLE aguila.contents (
  thread INT NOT NULL,
  digest BLOB NOT NULL,
  part INT NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (thread, digest, part)
);

-- The log. A row is a batch with one event per line. "place" is threads.key * 2^32 + the number of the last event, so
-- that the log needs no other index and the events of a thread are stored together.
CREATE TABLE aguila.log (
  place INT PRIMARY KEY,
  first INT NOT NULL,
  at INT NOT NULL, -- 0 if it is not known
  token TEXT NOT NULL, -- of the lease with which it was written
  starts INT NOT NULL, -- "first"; for what is left of a compacted run, the number at which the run began
  content BLOB, -- the digest of an event of more than 1 MiB; "events" is empty then
  events BLOB NOT NULL
);

-- The scope is repeated so that an interrupt is found without its thread.
CREATE TABLE aguila.interrupts (
  key KEY,
  scope TEXT NOT NULL,
  thread INT NOT NULL,
  interrupt_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  status TEXT NOT NULL,
  claimed_by TEXT,
  body BLOB NOT NULL,
  UNIQUE (thread, interrupt_id)
);
CREATE INDEX interrupts_scope ON aguila.interrupts (scope, interrupt_id);

CREATE TABLE aguila.effects (
  key KEY,
  thread INT NOT NULL,
  root TEXT NOT NULL, -- id of the root run
  name TEXT NOT NULL,
  epoch INT NOT NULL,
  value BLOB, -- null if it has begun and has no result
  UNIQUE (thread, root, name)
);

-- Processes other than the owner that have viewers of an open run.
CREATE TABLE aguila.viewers (
  run INT NOT NULL,
  viewer TEXT NOT NULL, -- name of the process
  until REAL NOT NULL, -- when the entry expires, or when the last viewer left
  seconds REAL NOT NULL, -- for how long the entry was made
  lock TEXT, -- as runs.lock
  PRIMARY KEY (run, viewer)
);

CREATE TABLE aguila.files (
  key KEY,
  scope TEXT NOT NULL,
  file_id TEXT NOT NULL,
  media_type TEXT NOT NULL,
  filename TEXT,
  size INT NOT NULL,
  created_at REAL NOT NULL,
  kept FLAG NOT NULL, -- stored at least once without a thread, so no thread's removal deletes it
  UNIQUE (scope, file_id)
);
CREATE TABLE aguila.file_parts (file INT NOT NULL, part INT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (file, part));
-- Which threads hold a file. By thread id and not by key: a file may be stored before the first run of its thread.
CREATE TABLE aguila.holds (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  file INT NOT NULL,
  PRIMARY KEY (scope, thread_id, file)
);
CREATE INDEX holds_file ON aguila.holds (file);

-- The last number of each removed thread, by a hash of its scope and id.
CREATE TABLE aguila.removed (thread_hash INT PRIMARY KEY, last INT NOT NULL);
-- Keys of deleted threads whose log, contents, runs and effects are removed in steps.
CREATE TABLE aguila.trash (thread INT PRIMARY KEY);

-- What each scope holds (kind 0), and the whole store (kind 1), for quotas: the sum of the rows of all slots. A process
-- writes the rows of its slot. A thread counts from the end of its first run, and its bytes at the end of each run.
CREATE TABLE aguila.usage (
  kind FLAG NOT NULL,
  scope TEXT NOT NULL,
  slot INT NOT NULL,
  threads INT NOT NULL,
  files INT NOT NULL,
  bytes INT NOT NULL,
  PRIMARY KEY (kind, scope, slot)
);

-- One row that health checks write, as large as a small run.
CREATE TABLE aguila.checks (key KEY, at REAL NOT NULL, body BLOB NOT NULL);
CREATE TABLE aguila.schema_info (version INT NOT NULL);
