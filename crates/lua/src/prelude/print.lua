-- `print` as Lua has it: the arguments through tostring, tabs between them, a line a call.
local write = ...
local concat, select, tostring = table.concat, select, tostring

return function(...)
  local parts = {}
  for index = 1, select("#", ...) do
    parts[index] = tostring((select(index, ...)))
  end
  write(concat(parts, "\t"))
end
