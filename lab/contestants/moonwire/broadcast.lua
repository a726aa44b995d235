-- What anybody sends goes to all that have subscribed.
local broadcast = {}

-- The handlers of all members, and where each of them stands.
local members, places = {}, {}

local function leave(handler)
  local place = places[handler]
  if place then
    local last = table.remove(members)
    if last ~= handler then
      members[place], places[last] = last, place
    end
    places[handler] = nil
  end
end

function broadcast.onStart() end

function broadcast.onShutdown() end

function broadcast.onMessage(handler, opcode, message)
  if message == "subscribe" then
    if not places[handler] then
      members[#members + 1] = handler
      places[handler] = #members
    end
    return ws:send(handler, opcode, "subscribed")
  end
  -- One that is ended because it does not read leaves when it is gone.
  for place = 1, #members do
    ws:send(members[place], opcode, message)
  end
  return true
end

function broadcast.onDisconnect(handler)
  leave(handler)
end

return broadcast
