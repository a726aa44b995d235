-- Functions that nothing bounds where they lie within each other, and one that calls itself without
-- an instruction at which it could be stopped.
local may_call, may_resume = ...
local type, error, tostring = type, error, tostring
local resume, wrap, gsub, load = coroutine.resume, coroutine.wrap, string.gsub, load

function coroutine.resume(...)
  if not may_resume() then
    return false, "stack overflow"
  end
  return resume(...)
end

function coroutine.wrap(...)
  local run = wrap(...)
  return function(...)
    if not may_resume() then
      error("stack overflow", 2)
    end
    return run(...)
  end
end

function string.gsub(s, pattern, replacement, ...)
  local kind = type(replacement)
  if kind ~= "string" and kind ~= "number" and not may_call() then
    error("stack overflow", 2)
  end
  return gsub(s, pattern, replacement, ...)
end

function _G.load(chunk, ...)
  if type(chunk) == "function" and not may_call() then
    return nil, "stack overflow"
  end
  return load(chunk, ...)
end

-- As its own metamethod it would go on for ever.
function _G.tostring(...)
  local text = tostring(...)
  return text
end
