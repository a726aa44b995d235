-- Takes work out of a queue, and prints each second how much it was.

local PERIOD_MS = 1000

local queue = mqr.create("testpipe")

local mqr_receiver = {}

function mqr_receiver.init()
end

function mqr_receiver.run()
  local received, since = 0, time.now()
  while not must_stop() do
    -- Waits; nil is the order to stop.
    if queue:recv() then
      received = received + 1
    end
    local now = time.now()
    if now - since >= PERIOD_MS then
      print("receiver " .. instance_id .. ": " .. received .. " in " .. now - since .. " ms")
      received, since = 0, now
    end
  end
end

return mqr_receiver
