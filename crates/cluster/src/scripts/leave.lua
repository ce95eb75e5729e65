-- Removes the record of a replica that shuts down.
-- ARGV: prefix, place, lease.

local boot = boot_of(ARGV[2])
redis.call('DEL', prefix .. 'replica:' .. boot, prefix .. 'taken:' .. boot)
redis.call('SREM', prefix .. 'replicas', boot)
-- Until every other replica has noticed that the record is gone, so that none reports it as lost.
redis.call('SET', prefix .. 'left:' .. boot, '', 'PX', 2 * tonumber(ARGV[3]))
return 1
