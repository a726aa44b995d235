-- An echo the other way round: the server sends, the client sends back, the server measures.

local json = require("moonwire.json")
local time = require("moonwire.time")

local TEXT, BINARY = 1, 2
local UNSUPPORTED_DATA, POLICY_VIOLATION = 1003, 1008
local BYTES_MAX, COUNT_MAX = 65536, 1e6
local NS_PER_US, NS_PER_S = 1e3, 1e9

-- What is under way on each connection.
local runs = {}

-- Sends the next message. Each is another one, so that an old one is known.
local function serve(handler, run)
  run.sent = run.sent + 1
  run.message = ("%08d"):format(run.sent % 1e8):rep(math.ceil(run.bytes / 8)):sub(1, run.bytes)
  run.sent_ns = time.monotonic_ns()
  return ws:send(handler, BINARY, run.message)
end

local function report(handler, run, now_ns)
  runs[handler] = nil
  return ws:send(handler, TEXT, json.encode({
    messages = run.sent,
    bytes_each_way = run.sent * run.bytes,
    seconds = (now_ns - run.started_ns) / NS_PER_S,
    round_trip_us = {
      min = run.min_ns / NS_PER_US,
      mean = run.sum_ns / run.sent / NS_PER_US,
      max = run.max_ns / NS_PER_US,
    },
  }))
end

local function refuse(handler, why)
  return ws:send(handler, TEXT, json.encode({ error = why }))
end

local function within(value, low, high)
  return type(value) == "number" and value % 1 == 0 and value >= low and value <= high
end

local function begin(handler, text)
  local parsed, asked = pcall(json.decode, text)
  if not parsed or type(asked) ~= "table" then
    return refuse(handler, "expected a JSON object with bytes and count")
  end
  if not within(asked.bytes, 1, BYTES_MAX) or not within(asked.count, 1, COUNT_MAX) then
    local most = ("bytes from 1 to %d and count from 1 to %d"):format(BYTES_MAX, COUNT_MAX)
    return refuse(handler, "expected " .. most)
  end
  local run = {
    bytes = asked.bytes,
    left = asked.count,
    sent = 0,
    started_ns = time.monotonic_ns(),
    min_ns = math.huge,
    max_ns = 0,
    sum_ns = 0,
  }
  runs[handler] = run
  return serve(handler, run)
end

local reverse_echo = {}

function reverse_echo.onStart()
end

function reverse_echo.onShutdown()
end

function reverse_echo.onDisconnect(handler)
  runs[handler] = nil
end

function reverse_echo.onMessage(handler, opcode, message)
  local run = runs[handler]
  if opcode == TEXT and not run then
    return begin(handler, message)
  end
  if opcode ~= BINARY or not run then
    return (ws:close(handler, UNSUPPORTED_DATA, "text asks for messages, binary answers one"))
  end
  if message ~= run.message then
    return (ws:close(handler, POLICY_VIOLATION, "that is not what was sent"))
  end
  local now_ns = time.monotonic_ns()
  local took_ns = now_ns - run.sent_ns
  run.min_ns, run.max_ns = math.min(run.min_ns, took_ns), math.max(run.max_ns, took_ns)
  run.sum_ns = run.sum_ns + took_ns
  run.left = run.left - 1
  if run.left == 0 then
    return report(handler, run, now_ns)
  end
  return serve(handler, run)
end

return reverse_echo
