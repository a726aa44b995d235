-- The global `ws`. Wrong arguments are found here, where the service's own types are at hand; the
-- host only sees a number, a number and a string.
local send, send_document, close = ...
local type, error, tostring = type, error, tostring

local ws = {}

local SEND = "ws:send(handler, opcode, data)"
local SEND_DOCUMENT = "ws:send(handler, message)"
local CLOSE = "ws:close(handler, code [, reason])"

local function refuse(usage, name, wanted, value)
  return false, usage .. ": " .. name .. " must be " .. wanted .. ", not a " .. type(value)
end

-- A message of the LAppS protocol: a response on channel 0 or a notification on another.
local function send_message(handler, message)
  if type(message) ~= "userdata" then
    return refuse(SEND_DOCUMENT, "message", "a value of nljson", message)
  end
  local problem = send_document(handler, message)
  if problem then
    return false, SEND_DOCUMENT .. ": " .. problem
  end
  return true
end

-- Queues one message: ws:send(handler, opcode, data), or ws:send(handler, message) with a value of
-- nljson. Returns true, or false and a text.
function ws.send(self, handler, opcode, data)
  if self ~= ws then
    error("call it with a colon: " .. SEND, 2)
  end
  if type(handler) ~= "number" then
    return refuse(SEND, "handler", "a number", handler)
  end
  if data == nil and type(opcode) ~= "number" then
    return send_message(handler, opcode)
  end
  -- A 64-bit integer of the ffi equals a number and is none.
  if type(opcode) ~= "number" or (opcode ~= 1 and opcode ~= 2) then
    return false, SEND .. ": opcode must be 1 (text) or 2 (binary)"
  end
  local kind = type(data)
  if kind == "number" then
    data = tostring(data)
  elseif kind ~= "string" then
    return refuse(SEND, "data", "a string or a number", data)
  end
  local problem = send(handler, opcode, data)
  if problem then
    return false, SEND .. ": " .. problem
  end
  return true
end

-- Starts the closing handshake. Returns true, or false and a text.
function ws.close(self, handler, code, reason)
  if self ~= ws then
    error("call it with a colon: " .. CLOSE, 2)
  end
  if type(handler) ~= "number" then
    return refuse(CLOSE, "handler", "a number", handler)
  end
  if type(code) ~= "number" then
    return refuse(CLOSE, "code", "a number", code)
  end
  if reason ~= nil and type(reason) ~= "string" then
    return refuse(CLOSE, "reason", "a string", reason)
  end
  local problem = close(handler, code, reason or "")
  if problem then
    return false, CLOSE .. ": " .. problem
  end
  return true
end

return ws
