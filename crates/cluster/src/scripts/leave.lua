-- Removes the record of a replica that shuts down.
-- ARGV: prefix, place.

local boot = boot_of(ARGV[2])
redis.call('DEL', prefix .. 'replica:' .. boot, prefix .. 'taken:' .. boot)
redis.call('SREM', prefix .. 'replicas', boot)
return 1
