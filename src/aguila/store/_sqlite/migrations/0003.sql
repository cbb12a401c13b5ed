-- "runs.cancel_requested" is 0 (no), 1 (in any case) or 2 (if nobody watches; the owner has not answered yet).

-- Viewers that a process other than the owner has of an open run. "until" is when the note runs out if it is not made
-- again, or when the last of them left; "seconds" is for how long it was made.
CREATE TABLE viewers (
  run INTEGER NOT NULL,
  viewer TEXT NOT NULL,
  until REAL NOT NULL,
  seconds REAL NOT NULL,
  PRIMARY KEY (run, viewer)
) WITHOUT ROWID;
