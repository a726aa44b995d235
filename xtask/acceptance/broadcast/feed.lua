-- Where the subscribers are: they subscribe, ask whether that is done, and one has it begin.

local CHANNEL = 7

local starts = mqr.create("starts")
local ready = nljson.decode('{"status": 1, "result": [], "cid": 0}')

local feed = {}

function feed.onStart()
end

function feed.onShutdown()
end

function feed.onDisconnect(handler)
end

function feed.onMessage(handler, kind, message)
  if message.method == "subscribe" then
    return bcast:subscribe(CHANNEL, handler)
  elseif message.method == "start" then
    return starts:post(message)
  end
  return ws:send(handler, ready)
end

return feed
