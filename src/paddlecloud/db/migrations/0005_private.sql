-- oldest: 1
-- Jobs whose files lie in their owner's own bucket: the sealed keys, and what is copied there.

create table private_stores (
    job_id text primary key references jobs (id) on delete cascade,
    -- The keys; only the server's key opens them.
    sealed text not null,
    -- Logs of the attempts up to this one are in the bucket.
    copied integer not null,
    done integer not null,
    tries integer not null,
    not_before bigint not null,
    trouble text
);

create index private_stores_to_copy on private_stores (not_before, job_id) where done = 0;

create table private_files (
    owner text not null,
    snapshot text not null,
    -- JSON: by mark, the path and the tag of each file.
    tags text not null,
    primary key (owner, snapshot),
    foreign key (owner, snapshot) references snapshots (owner, id) on delete cascade
);
