-- The way from an event to the service's function. The function is looked up through the global on
-- every event, as LAppS does: a service may replace its own callbacks while it runs.
local name = ...
local globals = _G

local function onMessage(handler, opcode, message)
  return globals[name].onMessage(handler, opcode, message) == true
end

local function onDisconnect(handler)
  globals[name].onDisconnect(handler)
end

local function onStart()
  globals[name].onStart()
end

local function onShutdown()
  globals[name].onShutdown()
end

local function onHandshake(request)
  return globals[name].onHandshake(request)
end

return onMessage, onDisconnect, onStart, onShutdown, onHandshake
