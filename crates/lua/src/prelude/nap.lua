-- nap. As in LAppS a wrong count of arguments returns a text, and a wrong type does nothing.
local sleep = ...
local type, select, setmetatable, floor = type, select, setmetatable, math.floor

local Nap = {}
Nap.__index = Nap
Nap.__metatable = "nap"

local function sleeper(name, unit, nanoseconds)
  local usage = "Usage: nap:" .. name .. "(" .. unit .. ")"
  return function(...)
    if select("#", ...) ~= 2 then
      return usage
    end
    local _, count = ...
    -- At most the 292 years that 64 bits of nanoseconds hold.
    if type(count) == "number" and count > 0 and count < 9.2e18 / nanoseconds then
      sleep(floor(count) * nanoseconds)
    end
  end
end

Nap.sleep = sleeper("sleep", "seconds", 1e9)
Nap.usleep = sleeper("usleep", "microseconds", 1e3)
Nap.nsleep = sleeper("nsleep", "nanoseconds", 1)

return {
  new = function()
    return setmetatable({}, Nap)
  end,
}
