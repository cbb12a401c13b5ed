-- The number of a thread's first event: 1, unless its id was used before.
ALTER TABLE threads ADD COLUMN first INTEGER NOT NULL DEFAULT 1;

-- What is left of a removed thread, so that its cursors are never taken for those of a thread that has its id next: a
-- hash of scope and id, and the last number that was issued.
CREATE TABLE removed (thread INTEGER PRIMARY KEY, last INTEGER NOT NULL);
