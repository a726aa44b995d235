-- Sends every message back to where it came from.

local echo = {}

function echo.onStart()
end

function echo.onShutdown()
end

function echo.onDisconnect(handler)
end

-- `opcode` is 1 for text and 2 for binary. True keeps the connection; a message that cannot be sent
-- back closes it.
function echo.onMessage(handler, opcode, message)
  return ws:send(handler, opcode, message)
end

return echo
