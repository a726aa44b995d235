-- What feed is, under another name.

return require("feed")
