-- Sessions that outlive their connections: who comes back in time gets what was missed.
--
-- Clients send and get JSON objects in text messages; README.md has all of them.

local json = require("moonwire.json")
local time = require("moonwire.time")
local config = require("moonwire.config")

local TEXT = 1
local SESSIONS_MAX = 1000
-- Events of a session that can be had again.
local EVENTS_MAX = 100
local NAMES_MAX, WORD_BYTES_MAX, COMMAND_BYTES_MAX = 100, 64, 4096
local NS_PER_S = 1e9

-- How long a session waits for its client.
local patience_ns = (config.patience_s or 10) * NS_PER_S

-- sessions[token]; a session has a handler while its client is here, else the time it was lost.
local sessions, count = {}, 0
-- The session of each connection.
local places = {}

local function tell(handler, fields)
  return ws:send(handler, TEXT, json.encode(fields))
end

local function token()
  local source = assert(io.open("/dev/urandom", "rb"))
  local bytes = source:read(16)
  source:close()
  return (bytes:gsub(".", function(byte)
    return ("%02x"):format(byte:byte())
  end))
end

-- Forgets the sessions whose clients have not come back.
local function tidy()
  local now_ns = time.monotonic_ns()
  for name, session in pairs(sessions) do
    if session.lost_ns and now_ns - session.lost_ns > patience_ns then
      sessions[name], count = nil, count - 1
    end
  end
end

-- An event has a number, and is kept until so many others have come.
local function emit(session, fields)
  session.last = session.last + 1
  fields.event = session.last
  session.events[session.last % EVENTS_MAX] = fields
  return tell(session.handler, fields)
end

-- What can be typed. Each gets the session and the rest of the line, and returns lines.
local commands = {}

function commands.help()
  return { "echo TEXT, set NAME VALUE, get NAME, names, sum NUMBER ..., help" }
end

function commands.echo(_, rest)
  return { rest }
end

function commands.set(session, rest)
  local name, value = rest:match("^(%S+)%s+(.*)$")
  if not name or #name > WORD_BYTES_MAX then
    return nil, "set needs a name of up to " .. WORD_BYTES_MAX .. " bytes and a value"
  end
  if not session.values[name] then
    if session.names >= NAMES_MAX then
      return nil, "this session has " .. NAMES_MAX .. " names, which is the most"
    end
    session.names = session.names + 1
  end
  session.values[name] = value
  return {}
end

function commands.get(session, rest)
  local value = session.values[rest]
  if not value then
    return nil, "there is no such name"
  end
  return { value }
end

function commands.names(session)
  local names = {}
  for name in pairs(session.values) do
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

function commands.sum(_, rest)
  local sum = 0
  for word in rest:gmatch("%S+") do
    local number = tonumber(word)
    if not number then
      return nil, "sum needs numbers"
    end
    sum = sum + number
  end
  return { tostring(sum) }
end

-- What clients may ask for.
local actions = {}

function actions.open(handler)
  tidy()
  if places[handler] then
    return tell(handler, { error = "this connection has a session" })
  end
  if count >= SESSIONS_MAX then
    return tell(handler, { error = "there are as many sessions as can be" })
  end
  local name = token()
  sessions[name] = { handler = handler, events = {}, last = 0, values = {}, names = 0 }
  places[handler], count = name, count + 1
  return tell(handler, { session = name, event = 0 })
end

function actions.resume(handler, name, message)
  tidy()
  local session = type(name) == "string" and sessions[name]
  if not session then
    return tell(handler, { error = "there is no such session, or it was not resumed in time" })
  end
  local after = message.after
  if type(after) ~= "number" or after % 1 ~= 0 or after < 0 or after > session.last then
    return tell(handler, { error = "after must be the number of the last event that you have" })
  end
  if session.last - after > EVENTS_MAX then
    return tell(handler, { error = "some events after that are gone" })
  end
  -- The client may know before the server that its old connection is gone.
  if session.handler then
    places[session.handler] = nil
    ws:close(session.handler, 1000, "the session goes on at another connection")
  end
  session.handler, session.lost_ns = handler, nil
  places[handler] = name
  for event = after + 1, session.last do
    tell(handler, session.events[event % EVENTS_MAX])
  end
  return tell(handler, { resumed = name, event = session.last })
end

function actions.command(handler, line, message)
  local session = sessions[places[handler]]
  if not session then
    return tell(handler, { error = "open a session, or resume one, before you type" })
  end
  if type(line) ~= "string" or #line > COMMAND_BYTES_MAX then
    local most = "text of up to " .. COMMAND_BYTES_MAX .. " bytes"
    return tell(handler, { error = "command must be " .. most })
  end
  local word, rest = line:match("^%s*(%S*)%s*(.-)%s*$")
  local command = commands[word]
  local output, why
  if command then
    output, why = command(session, rest)
  else
    why = "there is no such command; try help"
  end
  return emit(session, {
    id = message.id,
    output = output and json.array(output),
    failed = why,
  })
end

local terminal = {}

function terminal.onStart()
end

function terminal.onShutdown()
end

-- The session waits.
function terminal.onDisconnect(handler)
  local session = sessions[places[handler]]
  places[handler] = nil
  if session then
    session.handler, session.lost_ns = nil, time.monotonic_ns()
  end
end

function terminal.onMessage(handler, opcode, text)
  local parsed, message = pcall(json.decode, text)
  if opcode ~= TEXT or not parsed or type(message) ~= "table" then
    return tell(handler, { error = "expected a JSON object in a text message" })
  end
  for _, name in ipairs({ "open", "resume", "command" }) do
    if message[name] ~= nil then
      return actions[name](handler, message[name], message)
    end
  end
  return tell(handler, { error = "expected open, resume or command" })
end

return terminal
