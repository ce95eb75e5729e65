-- The calls of replicas that are gone.
-- ARGV: prefix, most calls to return.

local found = {}
for _, boot in ipairs(redis.call('SMEMBERS', prefix .. 'calls')) do
  local key = prefix .. 'calls:' .. boot
  if redis.call('EXISTS', key) == 0 then
    redis.call('SREM', prefix .. 'calls', boot)
  elseif redis.call('EXISTS', prefix .. 'replica:' .. boot) == 0 then
    local calls = redis.call('HGETALL', key)
    for at = 1, #calls, 2 do
      if #found >= tonumber(ARGV[2]) * 3 then
        return found
      end
      found[#found + 1] = boot
      found[#found + 1] = calls[at]
      found[#found + 1] = calls[at + 1]
    end
  end
end
return found
