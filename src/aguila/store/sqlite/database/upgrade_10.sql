-- Requests of earlier versions stay whole: their "messages" are null.
ALTER TABLE inputs ADD COLUMN base INTEGER;
ALTER TABLE inputs ADD COLUMN messages BLOB;
ALTER TABLE inputs ADD COLUMN depth INTEGER;
ALTER TABLE inputs ADD COLUMN files BLOB;
CREATE TABLE messages (
  thread INTEGER NOT NULL,
  digest BLOB NOT NULL,
  body BLOB NOT NULL,
  files BLOB,
  PRIMARY KEY (thread, digest)
) WITHOUT ROWID;
ALTER TABLE runs ADD COLUMN sent_run_id TEXT;
-- Only a run whose id was derived has another one than its request.
UPDATE runs SET sent_run_id = (
  SELECT json_extract(i.body, '$.runId') FROM inputs i WHERE i.run = runs.key AND json_valid(i.body)
) WHERE run_id GLOB 'run_[0-9a-f]*' AND length(run_id) = 36;
