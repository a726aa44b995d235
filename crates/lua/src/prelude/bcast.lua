-- The global `bcast`. Every function returns true, or false and a text.
local host = ...
local type, error = type, error

local bcast = {}

local function checked(name, parameter, wanted)
  local call = host[name]
  local usage = "bcast:" .. name .. "(id" .. (parameter and ", " .. parameter or "") .. ")"
  bcast[name] = function(self, id, value)
    if self ~= bcast then
      error("call it with a colon: " .. usage, 2)
    end
    if type(id) ~= "number" then
      return false, usage .. ": id must be a number, not a " .. type(id)
    end
    if wanted and type(value) ~= wanted then
      local problem = parameter .. " must be a " .. wanted .. ", not a " .. type(value)
      return false, usage .. ": " .. problem
    end
    local problem = call(id, value)
    if problem then
      return false, usage .. ": " .. problem
    end
    return true
  end
end

-- Makes a channel for all services, or finds it.
checked("create")
-- A connection of this instance gets what is sent on a channel, as often as it has subscribed.
checked("subscribe", "handler", "number")
-- Takes one subscription back.
checked("unsubscribe", "handler", "number")
-- Sends a notification (a number `cid` and an array `message`) to all that subscribe.
checked("send", "message")

return bcast
