-- oldest: 1
-- What the outputs of an owner take up, as a running sum beside that of the files.

alter table storage add column outputs bigint not null default 0;

insert into storage (owner, files, outputs)
select owner, 0, cast(sum(output_bytes) as bigint) from jobs where output_bytes > 0 group by owner
on conflict (owner) do update set outputs = excluded.outputs;
