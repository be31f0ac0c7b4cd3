-- oldest: 1
-- Several replicas of a job on one machine: their cards, what they use now, commands beside them.

alter table replicas add column cards text not null default '';

-- Not to be placed before this time: it failed in a way that may pass.
alter table jobs add column not_before bigint;

create table replica_usage (
    replica text primary key references replicas (id) on delete cascade,
    at bigint not null,
    cpu double precision not null,
    memory bigint not null,
    peak_memory bigint not null,
    gpu double precision,
    gpu_memory bigint,
    quiet_since bigint not null
);

create table commands (
    id text primary key,
    replica text not null references replicas (id) on delete cascade,
    node text not null,
    owner text not null,
    command text not null,
    created_at bigint not null,
    stop_asked integer not null default 0,
    ended_at bigint,
    exit_code integer,
    message text not null default ''
);

create index commands_live on commands (node, created_at) where ended_at is null;
create index commands_of_replica on commands (replica);
