-- mqr: queues between services.
local host = ...
local type, error = type, error

local queue = {}

-- Puts a document at the end. Returns true, or false and a text.
function queue.post(self, message)
  local problem = host.post(self, message)
  if problem then
    return false, "queue:post(message): " .. problem
  end
  return true
end

local function receiver(name)
  local receive = host[name]
  return function(self)
    local message, problem = receive(self)
    if problem then
      error("queue:" .. name .. "(): " .. problem, 2)
    end
    return message
  end
end

-- Waits for a document; nil when the service must stop.
queue.recv = receiver("recv")
-- A document, or nil if there is none.
queue.try_recv = receiver("try_recv")

local mqr = {}

-- The queue with this name, the same in all services. Returns nil and a text if there are too many.
function mqr.create(name)
  if type(name) ~= "string" then
    return nil, "mqr.create(name): name must be a string, not a " .. type(name)
  end
  local made = host.create(name)
  if not made then
    return nil, "mqr.create(name): there are too many queues"
  end
  return made
end

return mqr, queue
