-- oldest: 1
-- Users of a team, what they may use and have used, what was changed by whom, what is to be sent.

alter table users add column email text;
alter table users add column plan text;
alter table users add column limits text;
alter table users add column notify text;
alter table users add column lang text not null default 'zh';
alter table users add column disabled_at bigint;
alter table users add column uid integer;

create unique index users_by_email on users (email) where email is not null;
create unique index users_by_uid on users (uid) where uid is not null;

alter table tokens add column name text not null default '';
alter table tokens add column scope text not null default 'full';
alter table tokens add column last_used_at bigint;
alter table tokens add column origin text not null default '';

alter table jobs add column quota_since bigint;
alter table jobs add column time_limit bigint;
alter table jobs add column output_bytes bigint not null default 0;

create index jobs_placed_of_owner on jobs (owner, pool)
    where finished_at is null and pool is not null;
create index jobs_with_outputs on jobs (owner, output_bytes) where output_bytes > 0;

create table usage (
    job_id text not null,
    attempt integer not null,
    owner text not null,
    pool text not null,
    public integer not null,
    cpu double precision not null,
    memory bigint not null,
    gpu integer not null,
    started_at bigint not null,
    ended_at bigint,
    primary key (job_id, attempt)
);

create index usage_by_owner on usage (owner, ended_at);
create index usage_by_end on usage (ended_at);
create index usage_live on usage (owner) where ended_at is null;

create table storage (
    owner text primary key,
    files bigint not null
);

create table rate_marks (
    name text not null,
    key text not null,
    at bigint not null,
    nonce text not null,
    primary key (name, key, at, nonce)
);

create table audit (
    number integer primary key,
    at bigint not null,
    actor text not null,
    source text not null,
    action text not null,
    target text not null,
    detail text not null
);

create index audit_by_target on audit (target, number);

create table outbox (
    id text primary key,
    kind text not null,
    owner text not null,
    address text not null,
    template text not null,
    params text not null,
    lang text not null,
    created_at bigint not null,
    due_at bigint not null,
    tries integer not null,
    last_error text,
    sent_at bigint,
    given_up_at bigint
);

create index outbox_due on outbox (due_at) where sent_at is null and given_up_at is null;
create index outbox_line on outbox (kind, owner, due_at)
    where sent_at is null and given_up_at is null;
create index outbox_of_owner on outbox (owner, created_at);
create index outbox_old on outbox (created_at);

create table servers (
    boot text primary key,
    place text not null,
    url text not null,
    node text not null,
    key_mark text not null,
    version text not null,
    started_at bigint not null,
    seen_at bigint not null
);
