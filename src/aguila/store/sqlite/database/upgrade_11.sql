ALTER TABLE log ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
-- Threads of earlier versions have no projections: they are written when the thread is read.
CREATE TABLE projections (run INTEGER PRIMARY KEY, format INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE projected_values (
  thread INTEGER NOT NULL,
  digest BLOB NOT NULL,
  files BLOB, -- the places of inline files in the body
  body BLOB NOT NULL,
  PRIMARY KEY (thread, digest)
) WITHOUT ROWID;
