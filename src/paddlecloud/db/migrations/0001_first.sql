-- Times are microseconds since 1970, booleans are 0 or 1, durations are microseconds.

create table counters (
    name text primary key,
    value bigint not null
);

create table users (
    id text primary key,
    role text not null,
    created_at bigint not null
);

create table tokens (
    ak text primary key,
    user_id text not null references users (id) on delete cascade,
    kind text not null,
    created_at bigint not null,
    revoked_at bigint
);

create index tokens_by_user on tokens (user_id);

create table snapshots (
    owner text not null,
    id text not null,
    size bigint not null,
    used_at bigint not null,
    entries text not null,
    primary key (owner, id)
);

create index snapshots_by_use on snapshots (used_at);

create table jobs (
    number integer primary key,
    id text not null unique,
    owner text not null,
    name text not null,
    state text not null,
    version integer not null,
    priority integer not null,
    attempt integer not null,
    retried integer not null,
    pool text,
    kill_asked integer not null,
    created_at bigint not null,
    waiting_since bigint not null,
    started_at bigint,
    running_since bigint,
    ran bigint not null,
    deadline bigint,
    finished_at bigint,
    snapshot text,
    reason_code text,
    reason text,
    failure text,
    spec text not null,
    foreign key (owner, snapshot) references snapshots (owner, id)
);

create index jobs_by_owner on jobs (owner, number);
create index jobs_by_state on jobs (owner, state, number);
create index jobs_by_name on jobs (owner, name, state, number);
create index jobs_by_snapshot on jobs (owner, snapshot) where snapshot is not null;
create index jobs_live on jobs (state, number) where finished_at is null;
create index jobs_placed on jobs (number) where finished_at is null and pool is not null;
create index jobs_line on jobs (priority, number, waiting_since)
    where pool is null and state in ('schedule', 'queue');
create index jobs_by_patience on jobs (waiting_since)
    where pool is null and state in ('schedule', 'queue');
create index jobs_line_of_owner on jobs (owner, priority desc, number)
    where pool is null and state in ('schedule', 'queue');
create index jobs_deadline on jobs (deadline) where finished_at is null and deadline is not null;
create index jobs_finished on jobs (finished_at) where finished_at is not null;

create table job_history (
    job_number integer not null references jobs (number) on delete cascade,
    step integer not null,
    at bigint not null,
    event text not null,
    before text not null,
    after text not null,
    reason text,
    primary key (job_number, step)
);

create table attempts (
    job_id text not null references jobs (id) on delete cascade,
    number integer not null,
    fence bigint not null,
    pool text not null,
    handle text,
    created_at bigint not null,
    ended_at bigint,
    outcome text not null,
    released integer not null,
    primary key (job_id, number)
);

create index attempts_live on attempts (job_id, number) where ended_at is null;
create index attempts_to_release on attempts (ended_at)
    where ended_at is not null and released = 0;

create table replicas (
    id text primary key,
    job_id text not null,
    attempt integer not null,
    fence bigint not null,
    role text not null,
    rank integer not null,
    node text not null,
    host text not null,
    port integer not null,
    cpu double precision not null,
    memory bigint not null,
    gpu integer not null,
    state text not null,
    pid integer,
    started_at bigint,
    log_bytes bigint not null,
    exit_record text,
    want text,
    seq bigint,
    grace bigint not null,
    cause text,
    foreign key (job_id, attempt) references attempts (job_id, number) on delete cascade
);

create index replicas_of_attempt on replicas (job_id, attempt);
create index replicas_in_use on replicas (node, cpu, memory, gpu)
    where state in ('ordered', 'running');
create index replicas_by_order on replicas (node, seq) where seq is not null;
create index replicas_live_orders on replicas (node, seq) where want in ('run', 'stop');

create table agents (
    id text primary key,
    pool text not null,
    boot text not null,
    version text not null,
    host text not null,
    cpu double precision not null,
    memory bigint not null,
    gpu integer not null,
    enforces text not null,
    first_seen_at bigint not null,
    seen_at bigint not null
);

create table nonces (
    ak text not null,
    nonce text not null,
    expires_at bigint not null,
    primary key (ak, nonce)
);

create index nonces_by_end on nonces (expires_at);

create table idempotency (
    owner text not null,
    key text not null,
    job_number integer not null references jobs (number) on delete cascade,
    request_hash text not null,
    created_at bigint not null,
    primary key (owner, key)
);

create index idempotency_by_job on idempotency (job_number);

create table leases (
    name text primary key,
    holder text not null,
    fence bigint not null,
    expires_at bigint not null
);
