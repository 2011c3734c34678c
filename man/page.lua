-- Makes pandoc's manual pages the same in all formatters: what is typed literally keeps its hyphens, code needs no
-- font that terminals lack, and no paragraph macro follows a heading, where it does nothing.

local ESCAPES = {['\\'] = '\\e', ['-'] = '\\-', ["'"] = '\\(aq', ['`'] = '\\(ga', ['^'] = '\\(ha', ['~'] = '\\(ti'}

local function literal(text)
  return (text:gsub("[\\%-'`^~]", ESCAPES))
end

-- In bold or italics are names, which a reader may copy into a shell.
local function name(element)
  return element:walk {Str = function(str) return pandoc.RawInline('man', literal(str.text)) end}
end

local function code_block(block)
  -- A line that begins with a point or an apostrophe would be a request.
  local lines = literal(block.text):gsub('\n%.', '\n\\&.'):gsub('^%.', '\\&.')
  return pandoc.RawBlock('man', '.IP\n.nf\n' .. lines .. '\n.fi')
end

-- The line of NAME has a minus between the name and what it is, by which man-db finds both.
local function name_line(block)
  return block:walk {Str = function(str) return pandoc.RawInline('man', literal(str.text)) end}
end

local function after_headings(document)
  for i = 2, #document.blocks do
    local heading, block = document.blocks[i - 1], document.blocks[i]
    if heading.t == 'Header' and block.t == 'Para' then
      if heading.identifier == 'name' then block = name_line(block) end
      document.blocks[i] = pandoc.Plain(block.content)
    end
  end
  return document
end

return {{Strong = name, Emph = name, CodeBlock = code_block}, {Pandoc = after_headings}}
