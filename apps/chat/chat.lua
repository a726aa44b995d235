-- Rooms: what a member says reaches all members of the room.
--
-- Members send and get JSON objects in text messages; README.md has all of them.

local TEXT = 1
local NAME_BYTES_MAX, SAID_BYTES_MAX = 64, 4096
-- Each message is sent to so many at most, and each new member told of so many.
local MEMBERS_MAX = 1000

-- Who is in each room: rooms[room][handler] is a name. A room that nobody is in is not kept.
local rooms = {}
-- Where each connection is, if it is in a room.
local places = {}

local function encode(fields)
  local message = nljson.decode("{}")
  for name, value in pairs(fields) do
    message[name] = value
  end
  return nljson.encode(message)
end

-- To all members of a room; the text is made once for all of them.
local function tell(room, fields)
  fields.room = room
  local text = encode(fields)
  for handler in pairs(rooms[room] or {}) do
    ws:send(handler, TEXT, text)
  end
end

-- Who sent something that makes no sense is told so, and stays.
local function refuse(handler, why)
  return ws:send(handler, TEXT, encode({ error = why }))
end

local function leave(handler)
  local room = places[handler]
  if not room then
    return
  end
  local members = rooms[room]
  local name = members[handler]
  members[handler], places[handler] = nil, nil
  if next(members) then
    tell(room, { left = name })
  else
    rooms[room] = nil
  end
end

local function names_in(room)
  local names = {}
  for _, name in pairs(rooms[room] or {}) do
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

local function is_text(value, bytes_max)
  return type(value) == "string" and #value > 0 and #value <= bytes_max
end

-- What clients may ask for.
local actions = {}

function actions.join(handler, room, message)
  local name = nljson.find(message, "name")
  if not is_text(room, NAME_BYTES_MAX) or not is_text(name, NAME_BYTES_MAX) then
    return refuse(handler, "join and name must be text of 1 to " .. NAME_BYTES_MAX .. " bytes")
  end
  leave(handler)
  local names = names_in(room)
  for _, taken in ipairs(names) do
    if taken == name then
      return refuse(handler, "somebody in this room has this name")
    end
  end
  if #names >= MEMBERS_MAX then
    return refuse(handler, "this room is full")
  end
  tell(room, { joined = name })
  rooms[room] = rooms[room] or {}
  rooms[room][handler], places[handler] = name, room
  return ws:send(handler, TEXT, encode({ room = room, members = names_in(room) }))
end

function actions.say(handler, said)
  local room = places[handler]
  if not room then
    return refuse(handler, "join a room before you say something")
  end
  if not is_text(said, SAID_BYTES_MAX) then
    return refuse(handler, "say must be text of 1 to " .. SAID_BYTES_MAX .. " bytes")
  end
  tell(room, { from = rooms[room][handler], said = said })
  return true
end

function actions.leave(handler)
  leave(handler)
  return true
end

local chat = {}

function chat.onStart()
end

function chat.onShutdown()
end

-- However a connection ended, its room hears of it.
function chat.onDisconnect(handler)
  leave(handler)
end

function chat.onMessage(handler, opcode, text)
  local parsed, message = pcall(nljson.decode, text)
  if opcode ~= TEXT or not parsed or nljson.typename(message) ~= "object" then
    return refuse(handler, "expected a JSON object in a text message")
  end
  for _, name in ipairs({ "join", "say", "leave" }) do
    local value = nljson.find(message, name)
    if value ~= nil then
      return actions[name](handler, value, message)
    end
  end
  return refuse(handler, "expected join, say or leave")
end

return chat
