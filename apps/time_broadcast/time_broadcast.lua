-- Tells the time each second to all who subscribe to its channel, whichever service they use.

local CHANNEL = 1000
local PERIOD_US = 1000000

local time_broadcast = {}

function time_broadcast.init()
  bcast:create(CHANNEL)
end

function time_broadcast.run()
  local message = nljson.decode('{"cid": 5, "message": []}')
  local pause = nap:new()
  while not must_stop() do
    message.message[1] = os.date("Server time: %c")
    bcast:send(CHANNEL, message)
    pause:usleep(PERIOD_US)
  end
end

return time_broadcast
