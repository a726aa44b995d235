-- The LAppS protocol from login to logout: requests and notifications, answers and broadcasts.

local logins = require("lapps_echo_maps")
local methods = require("lapps_echo_methods")

-- What onMessage gets as the kind of a message.
local NOTIFICATION_WITH_PARAMS, REQUEST_WITH_PARAMS = 2, 4

local echo_lapps = {}
echo_lapps.__index = echo_lapps

-- The channel of time_broadcast, which is made or found, whoever starts first.
echo_lapps["onStart"] = function()
  bcast:create(1000)
end

echo_lapps["onShutdown"] = function()
end

-- Subscriptions end with their connection; what this service keeps itself does not.
echo_lapps["onDisconnect"] = function(handler)
  logins.forget(handler)
end

echo_lapps["onMessage"] = function(handler, kind, message)
  local known
  if kind == REQUEST_WITH_PARAMS then
    known = methods.requests
  elseif kind == NOTIFICATION_WITH_PARAMS then
    known = methods.notifications
  else
    return methods.refuse(handler, "invalid_request", "params are missing")
  end
  local method = known[message.method]
  if not method then
    return methods.refuse(handler, "no_such_method", "there is no such method")
  end
  return method(handler, message.params, message.cid)
end

return echo_lapps
