ALTER TABLE log ADD COLUMN compacted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN compacted INTEGER NOT NULL DEFAULT 0;
CREATE INDEX threads_archived ON threads (scope, touched) WHERE archived = 1;
CREATE INDEX threads_agent ON threads (scope, agent, touched) WHERE agent <> 'default';
CREATE TABLE metadata_members (
  scope TEXT NOT NULL,
  name TEXT NOT NULL,
  value TEXT NOT NULL,
  thread INTEGER NOT NULL,
  PRIMARY KEY (scope, name, value, thread)
) WITHOUT ROWID;
INSERT OR IGNORE INTO metadata_members (scope, name, value, thread)
  SELECT t.scope, m.key, CASE m.type WHEN 'text' THEN 's' || m.value ELSE '' END, d.thread
  FROM details d JOIN threads t ON t.key = d.thread, json_each(CAST(d.metadata AS TEXT)) m
  WHERE d.metadata IS NOT NULL;
