-- Answers each JSON message several times and measures how long it was on its way.

local json = require("moonwire.json")
local time = require("moonwire.time")
local config = require("moonwire.config")

local REPLIES_MAX = 1000
local SETTINGS = { replies = true, time_unit = true }

for name in pairs(config) do
  if not SETTINGS[name] then
    error('config: there is no "' .. tostring(name) .. '", only "replies" and "time_unit"')
  end
end

local now = ({ us = time.wall_us, ms = time.wall_ms })[config.time_unit or "us"]
if not now then
  error('config: time_unit must be "us" or "ms", not ' .. tostring(config.time_unit))
end

local replies = config.replies or 4
if type(replies) ~= "number" or replies % 1 ~= 0 or replies < 1 or replies > REPLIES_MAX then
  error("config: replies must be an integer from 1 to " .. REPLIES_MAX)
end

local INVALID_DATA = 1007
local UNSUPPORTED_DATA = 1003
local REASON_BYTES_MAX = 123

-- One table for all replies: a message makes no garbage but its own fields.
local reply = {}

-- The connection that sent nonsense is closed, and only that one.
local function refuse(handler, code, reason)
  return (ws:close(handler, code, reason:sub(1, REASON_BYTES_MAX)))
end

local amplify = {}

function amplify.onStart()
end

function amplify.onShutdown()
end

function amplify.onDisconnect(handler)
end

function amplify.onMessage(handler, opcode, message)
  -- Before the message is parsed: parsing is the server's work, not the network's.
  local received_at = now()

  local parsed, request = pcall(json.decode, message)
  if not parsed then
    return refuse(handler, INVALID_DATA, "expected a JSON object: " .. request)
  end
  if type(request) ~= "table" or type(request.created_at) ~= "number" then
    return refuse(handler, UNSUPPORTED_DATA, "expected an object with the number created_at")
  end

  reply.client_id = request.client_id
  reply.msg_id = request.msg_id
  reply.msg = request.msg
  reply.client_ts = request.created_at
  reply.created_at = received_at
  reply.server_latency = received_at - request.created_at

  local text = json.encode(reply)
  -- What the client sent may be large; it is not kept until the next message.
  reply.client_id, reply.msg_id, reply.msg = nil, nil, nil
  for _ = 1, replies do
    if not ws:send(handler, opcode, text) then
      return false
    end
  end
  return true
end

return amplify
