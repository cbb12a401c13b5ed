BEGIN TRANSACTION;
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
INSERT INTO "blobs" VALUES(1,'a','d5db1896efcf1b0d62b9738a2336e6faa014624c432518cd00cb5da879bd286a','text/plain','x.txt',4,1000.0,0,X'64617461');
INSERT INTO "blobs" VALUES(2,'a','a480c9f9d30a0e90ce5141181e608aa7655c59b955c551cece72cebb0c3a64f9','text/plain',NULL,4,1000.0,1,X'6B657074');
CREATE TABLE checks (key INTEGER PRIMARY KEY CHECK (key = 1), at REAL NOT NULL, body BLOB);
CREATE TABLE details (thread INTEGER PRIMARY KEY, title TEXT, metadata BLOB);
INSERT INTO "details" VALUES(3,'Title',X'7B226D223A317D');
CREATE TABLE effects (
  thread INTEGER NOT NULL,
  root_run_id TEXT NOT NULL,
  name TEXT NOT NULL,
  value BLOB NOT NULL,
  UNIQUE (thread, root_run_id, name)
);
INSERT INTO "effects" VALUES(2,'r1','k',X'31');
CREATE TABLE holds (
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  blob INTEGER NOT NULL,
  UNIQUE (scope, thread_id, blob)
);
INSERT INTO "holds" VALUES('a','t',1);
CREATE TABLE inputs (run INTEGER PRIMARY KEY, body BLOB NOT NULL, base INTEGER, messages BLOB, depth INTEGER, files BLOB);
INSERT INTO "inputs" VALUES(1,X'7B22696E223A317D',NULL,NULL,NULL,NULL);
INSERT INTO "inputs" VALUES(2,X'7B22696E223A317D',NULL,NULL,NULL,NULL);
INSERT INTO "inputs" VALUES(3,X'7B22696E223A317D',NULL,NULL,NULL,NULL);
INSERT INTO "inputs" VALUES(4,X'7B22696E223A317D',NULL,NULL,NULL,NULL);
CREATE TABLE interrupts (
  key INTEGER PRIMARY KEY AUTOINCREMENT,
  thread INTEGER NOT NULL,
  interrupt_id TEXT NOT NULL,
  run_id TEXT NOT NULL,
  status TEXT NOT NULL,
  claimed_by TEXT,
  body BLOB NOT NULL, scope TEXT NOT NULL DEFAULT '',
  UNIQUE (thread, interrupt_id)
);
INSERT INTO "interrupts" VALUES(1,2,'i1','r1','settled','r2',X'7B226964223A226931227D','a');
INSERT INTO "interrupts" VALUES(2,2,'i2','r1','open',NULL,X'7B226964223A226932227D','a');
CREATE TABLE "log" (place INTEGER PRIMARY KEY, first INTEGER NOT NULL, events BLOB NOT NULL);
INSERT INTO "log" VALUES(4294967300,4,X'7B226E223A2273746172746564227D');
INSERT INTO "log" VALUES(4294967301,5,X'7B226E223A2266696E6973686564227D');
INSERT INTO "log" VALUES(8589934593,1,X'7B226E223A2273746172746564227D');
INSERT INTO "log" VALUES(8589934595,2,X'7B226E223A226F6E65227D0A7B226E223A2274776F227D');
INSERT INTO "log" VALUES(8589934596,4,X'7B226E223A2261736B6564227D');
INSERT INTO "log" VALUES(8589934597,5,X'7B226E223A2273746172746564227D');
INSERT INTO "log" VALUES(12884901889,1,X'7B226E223A2273746172746564227D');
INSERT INTO "log" VALUES(12884901890,2,X'7B226E223A2266696E6973686564227D');
CREATE TABLE messages (
  thread INTEGER NOT NULL,
  digest BLOB NOT NULL,
  body BLOB NOT NULL,
  files BLOB,
  PRIMARY KEY (thread, digest)
) WITHOUT ROWID;
CREATE TABLE peers (token TEXT PRIMARY KEY, port INTEGER NOT NULL);
CREATE TABLE removed (thread INTEGER PRIMARY KEY, last INTEGER NOT NULL);
INSERT INTO "removed" VALUES(-6377142157806935499,2);
CREATE TABLE "runs" (
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
  lock INTEGER, sent_run_id TEXT, -- the lock file in which the owner held its lock when it became the owner
  UNIQUE (thread, run_id)
);
INSERT INTO "runs" VALUES(1,1,'r',NULL,'f',4,5,'success','o',1,30.0,1030.0,0,1000.0,1000.0,NULL,NULL);
INSERT INTO "runs" VALUES(2,2,'r1',NULL,'f',1,4,'interrupt','o',1,30.0,1030.0,0,1000.0,1000.0,NULL,NULL);
INSERT INTO "runs" VALUES(3,2,'r2','r1','f',5,NULL,NULL,'o',1,30.0,2030.0,0,2000.0,NULL,NULL,NULL);
INSERT INTO "runs" VALUES(4,3,'r',NULL,'f',1,2,'success','o',1,30.0,2030.0,0,2000.0,2000.0,NULL,NULL);
CREATE TABLE sessions (thread INTEGER PRIMARY KEY, body BLOB NOT NULL);
INSERT INTO "sessions" VALUES(2,X'6D696E65');
CREATE TABLE "threads" (
  key INTEGER PRIMARY KEY,
  scope TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  created_at REAL NOT NULL,
  updated_at REAL NOT NULL,
  touched INTEGER NOT NULL,
  first INTEGER NOT NULL, -- the number of its first event: 1, unless its id was used before
  last INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  running INTEGER, agent TEXT NOT NULL DEFAULT 'default', archived INTEGER NOT NULL DEFAULT 0, -- the key of the open run
  UNIQUE (scope, thread_id)
);
INSERT INTO "threads" VALUES(1,'a','again',1000.0,1000.0,2,4,5,39,NULL,'default',0);
INSERT INTO "threads" VALUES(2,'a','t',1000.0,2000.0,6,1,5,109,3,'default',0);
INSERT INTO "threads" VALUES(3,'a','titled',2000.0,2000.0,8,1,2,51,NULL,'helper',1);
CREATE TABLE viewers (
  run INTEGER NOT NULL,
  viewer TEXT NOT NULL,
  until REAL NOT NULL,
  seconds REAL NOT NULL, lock INTEGER,
  PRIMARY KEY (run, viewer)
) WITHOUT ROWID;
INSERT INTO "viewers" VALUES(3,'v',2030.0,30.0,NULL);
CREATE INDEX holds_blob ON holds (blob);
CREATE INDEX interrupts_scope ON interrupts (scope, interrupt_id);
CREATE INDEX threads_touched ON threads (scope, touched);
CREATE INDEX threads_running ON threads (scope, running) WHERE running IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('interrupts',2);
COMMIT;
PRAGMA user_version = 11;
