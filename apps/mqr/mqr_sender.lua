-- Puts work into a queue as fast as it is taken out.

local queue = mqr.create("testpipe")

local mqr_sender = {}

function mqr_sender.init()
end

function mqr_sender.run()
  local job = nljson.decode('{"job": "count me", "parameters": [1, 2, 3]}')
  while not must_stop() do
    -- A queue that is full waits here, until there is room or the server stops.
    queue:post(job)
  end
end

return mqr_sender
