-- A client of another server: it keeps a connection, says something each second, and prints what
-- comes back.

local URL = os.getenv("OUTGOING_URL") or "ws://127.0.0.1:5083/echo"
local TEXT = 1
local PERIOD_MS = 1000
local RETRY_S = 1

-- The connection, which is closed when nothing refers to it any more, and what names it once
-- messages can be sent.
local socket, opened

local function lost(why)
  print("outgoing: " .. why)
  socket, opened = nil, nil
end

local callbacks = {
  onopen = function(handler)
    opened = handler
  end,
  onmessage = function(handler, data, opcode)
    print("outgoing: received " .. data)
  end,
  onerror = function(handler, text)
    lost(text)
  end,
  onclose = function(handler)
    lost("the server has closed")
  end,
}

local outgoing = {}

function outgoing.init()
end

function outgoing.run()
  local pause, sent, due = nap:new(), 0, 0
  while not must_stop() do
    if not socket then
      local problem
      socket, problem = cws:new(URL, callbacks)
      if not socket then
        lost(problem)
        pause:sleep(RETRY_S)
      end
    end
    -- Waits a millisecond at most, and calls back what has happened.
    cws:eventLoop()
    if opened and time.now() >= due then
      sent, due = sent + 1, time.now() + PERIOD_MS
      -- Here the opcode comes last, unlike that of ws:send.
      cws:send(opened, "hello " .. sent, TEXT)
    end
  end
  if socket then
    socket:close()
  end
end

return outgoing
