-- oldest: 1
-- Machines that joined a pool with a token: their labels, and whether they take new jobs.

create table machines (
    name text primary key,
    pool text not null,
    -- JSON: label and value.
    labels text not null,
    joined_at bigint not null,
    -- Why it takes no new jobs; null: it takes them.
    drained text
);

create index machines_by_pool on machines (pool);
