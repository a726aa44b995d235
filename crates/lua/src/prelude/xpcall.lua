-- xpcall without its handler once the callback has been stopped for taking too long.
local is_stopped = ...
local xpcall = xpcall

function _G.xpcall(f, handler, ...)
  local function handle(message)
    if is_stopped() then
      return message
    end
    return handler(message)
  end
  return xpcall(f, handle, ...)
end
