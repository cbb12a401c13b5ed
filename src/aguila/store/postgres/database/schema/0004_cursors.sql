-- The token of an event is that of its run, or of the last take-over of the run before the event; see store/cursors.py.
-- "first" is the number of the first event that the new owner appends.
CREATE TABLE aguila.take_overs (
  thread bigint NOT NULL,
  first bigint NOT NULL,
  token bigint,
  PRIMARY KEY (thread, first)
);
CREATE INDEX runs_first ON aguila.runs (thread, first);

CREATE OR REPLACE FUNCTION aguila.empty_trash(p_rows integer) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  one bigint;
BEGIN
  SELECT thread INTO one FROM aguila.trash ORDER BY thread LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM aguila.log WHERE thread = one AND last IN (
    SELECT last FROM aguila.log WHERE thread = one ORDER BY last LIMIT p_rows);
  IF FOUND THEN
    RETURN true;
  END IF;
  DELETE FROM aguila.messages WHERE thread = one;
  DELETE FROM aguila.effects WHERE thread = one;
  DELETE FROM aguila.sessions WHERE thread = one;
  DELETE FROM aguila.projected_values WHERE thread = one;
  DELETE FROM aguila.take_overs WHERE thread = one;
  DELETE FROM aguila.inputs WHERE run IN (SELECT key FROM aguila.runs WHERE thread = one);
  DELETE FROM aguila.projections WHERE run IN (SELECT key FROM aguila.runs WHERE thread = one);
  DELETE FROM aguila.runs WHERE thread = one;
  DELETE FROM aguila.trash WHERE thread = one;
  RETURN true;
END
$$;
