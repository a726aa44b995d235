-- The global `cws`: connections to other servers. `live` has the callbacks of each connection that
-- has not ended, by handler; they keep it from being collected, as in LAppS.
local host, live = ...
local type, error, ipairs, tonumber, tostring = type, error, ipairs, tonumber, tostring
local xpcall = xpcall
-- A restricted service has no library that knows the calls.
local traceback = debug and debug.traceback or function(message)
  return message
end
local begin, next_event, finish = host.begin, host.next, host.finish
local events_max = host.events_max

local cws = {}

local NEW = "cws:new(uri, callbacks)"
local SEND = "cws:send(handler, data, opcode)"
local LOOP = "cws:eventLoop()"

-- Connects. Returns a socket, or nil and a text.
function cws.new(self, uri, callbacks)
  if self ~= cws then
    error("call it with a colon: " .. NEW, 2)
  end
  if type(uri) ~= "string" then
    return nil, NEW .. ": uri must be a string, not a " .. type(uri)
  end
  if type(callbacks) ~= "table" then
    return nil, NEW .. ": callbacks must be a table, not a " .. type(callbacks)
  end
  for _, name in ipairs({ "onopen", "onmessage", "onerror", "onclose" }) do
    local callback = callbacks[name]
    if callback ~= nil and type(callback) ~= "function" then
      return nil, NEW .. ": " .. name .. " must be a function, not a " .. type(callback)
    end
  end
  local socket, problem = host.connect(uri, callbacks)
  if problem then
    return nil, NEW .. ": " .. problem
  end
  return socket
end

-- Queues one message. Returns true, or false and a text. Numbers may be strings, as in LAppS.
function cws.send(self, handler, data, opcode)
  if self ~= cws then
    error("call it with a colon: " .. SEND, 2)
  end
  local number = tonumber(handler)
  if not number then
    return false, SEND .. ": handler must be a number, not a " .. type(handler)
  end
  local kind = type(data)
  if kind == "number" then
    data = tostring(data)
  elseif kind ~= "string" then
    return false, SEND .. ": data must be a string or a number, not a " .. kind
  end
  opcode = tonumber(opcode)
  if opcode ~= 1 and opcode ~= 2 then
    return false, SEND .. ": opcode must be 1 (text) or 2 (binary)"
  end
  local problem = host.send(number, opcode, data)
  if problem then
    return false, SEND .. ": " .. problem
  end
  return true
end

-- Each callback gets as many arguments as it has in LAppS.
local function invoke(callbacks, name, handler, data, opcode)
  local callback = callbacks[name]
  if callback == nil then
    return
  end
  if opcode then
    callback(handler, data, opcode)
  elseif data then
    callback(handler, data)
  else
    callback(handler)
  end
end

local function with_calls(problem)
  return traceback(tostring(problem), 2)
end

-- What cannot even be told has no text.
local function text_of(problem)
  return type(problem) == "string" and problem or "an error without a text"
end

-- Runs the callbacks of what has happened. An error in one of them ends nothing but that call.
function cws.eventLoop(self)
  if self ~= cws then
    error("call it with a colon: " .. LOOP, 2)
  end
  begin()
  for _ = 1, events_max do
    local name, handler, data, opcode = next_event()
    if not name then
      break
    end
    local callbacks = live[handler]
    if name == "onclose" or name == "onerror" then
      live[handler] = nil
    end
    if callbacks then
      local done, problem = xpcall(invoke, with_calls, callbacks, name, handler, data, opcode)
      if not done then
        host.failed(name, handler, text_of(problem))
      end
    end
  end
  finish()
end

local socket = {}

-- Closes the connection; no callback of it is called any more.
function socket.close(self)
  if not host.close(self) then
    error("socket:close(): call it with a colon on what cws:new returned", 2)
  end
end

return cws, socket
