-- Whose interrupt it is can be asked without its thread. The scope is repeated here, so that an id that many scopes use
-- costs each of them one look-up.
ALTER TABLE interrupts ADD COLUMN scope TEXT NOT NULL DEFAULT '';
UPDATE interrupts SET scope = (SELECT scope FROM threads WHERE threads.key = interrupts.thread);
CREATE INDEX interrupts_scope ON interrupts (scope, interrupt_id);
