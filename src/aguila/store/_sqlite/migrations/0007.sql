-- How many runs of a scope are on, counted whenever one begins. With both columns the index answers by itself.
CREATE INDEX threads_running ON threads (scope, running) WHERE running IS NOT NULL;
