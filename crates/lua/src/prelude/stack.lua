-- Functions that nothing bounds where they lie within each other, and one that calls itself without
-- an instruction at which it could be stopped.
local has_room = ...
local type, error, tostring = type, error, tostring
local resume, wrap, gsub = coroutine.resume, coroutine.wrap, string.gsub

function coroutine.resume(...)
  if not has_room() then
    return false, "stack overflow"
  end
  return resume(...)
end

function coroutine.wrap(...)
  local run = wrap(...)
  return function(...)
    if not has_room() then
      error("stack overflow", 2)
    end
    return run(...)
  end
end

function string.gsub(s, pattern, replacement, ...)
  local kind = type(replacement)
  if kind ~= "string" and kind ~= "number" and not has_room() then
    error("stack overflow", 2)
  end
  return gsub(s, pattern, replacement, ...)
end

-- As its own metamethod it would go on for ever.
function _G.tostring(...)
  local text = tostring(...)
  return text
end
