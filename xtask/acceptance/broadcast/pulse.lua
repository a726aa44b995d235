-- Broadcasts 1 KiB each second, as often as it is asked for: a number that counts up, the time of
-- sending in microseconds, and what fills it up.

local time = require("moonwire.time")

local CHANNEL = 7
local PERIOD_NS = 1000000000
-- With these the message has 1024 bytes.
local FILLER_BYTES = 988

local starts = mqr.create("starts")

local pulse = {}

function pulse.init()
  bcast:create(CHANNEL)
end

function pulse.run()
  local start = starts:recv()
  if not start then
    return
  end
  local message = nljson.decode('{"cid": 7, "message": []}')
  message.message[3] = string.rep("x", FILLER_BYTES)
  local pause, begin = nap:new(), time.monotonic_ns()
  for round = 1, start.params[1] do
    pause:nsleep(begin + (round - 1) * PERIOD_NS - time.monotonic_ns())
    if must_stop() then
      return
    end
    message.message[1] = round
    message.message[2] = time.wall_us()
    assert(bcast:send(CHANNEL, message))
  end
end

return pulse
