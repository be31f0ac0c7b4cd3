-- oldest: 1
-- Agents have keys of their own, apart from users; tokens by which they join; pools that admins add.

create table agent_keys (
    ak text primary key,
    agent text not null,
    node text not null,
    -- Empty: a key from before agents had a pool.
    pool text not null,
    -- Of an agent that serves one attempt only.
    job_id text,
    attempt integer,
    -- Digest of the token that it joined with.
    join_token text,
    created_at bigint not null,
    revoked_at bigint,
    foreign key (job_id, attempt) references attempts (job_id, number) on delete cascade
);

create index agent_keys_by_node on agent_keys (node);
create index agent_keys_of_attempt on agent_keys (job_id, attempt);

-- The tokens stay until no server of an older version runs any more: such servers look there.
insert into agent_keys (ak, agent, node, pool, created_at, revoked_at)
select ak, user_id, user_id, '', created_at, revoked_at from tokens where kind = 'agent';

create table join_tokens (
    digest text primary key,
    pool text not null,
    job_id text,
    attempt integer,
    uses_left integer not null,
    created_at bigint not null,
    expires_at bigint not null,
    foreign key (job_id, attempt) references attempts (job_id, number) on delete cascade
);

create index join_tokens_by_end on join_tokens (expires_at);
create index join_tokens_of_attempt on join_tokens (job_id, attempt);

create table pools (
    name text primary key,
    -- JSON: the keys of its table, as in the settings file, without secrets.
    options text not null,
    -- JSON of the secrets, sealed with the server's key.
    sealed text,
    created_at bigint not null,
    created_by text not null
);
