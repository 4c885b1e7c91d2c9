#include "tern/data/formats/annotations/voc.h"

#include <string>

#include <gtest/gtest.h>

#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"

namespace tern::voc_test {
namespace {

VocFile parse(const std::string& text) {
  return parse_voc(as_bytes(text), "a.xml");
}

std::string fault(const std::string& text) {
  return error_of<DataError>([&] { parse(text); });
}

/// Returns an annotation with an object on its third line.
std::string with_object(const std::string& object) {
  return "<annotation>\n<filename>a.jpg</filename>\n<object>" + object +
         "</object>\n</annotation>";
}

TEST(Voc, ReadsAFileOfVoc2012) {
  const VocFile file = parse(
      "<annotation>\n"
      "\t<folder>VOC2012</folder>\n"
      "\t<filename>2007_000027.jpg</filename>\n"
      "\t<size><width>486</width><height>500</height><depth>3</depth></size>\n"
      "\t<segmented>0</segmented>\n"
      "\t<object>\n"
      "\t\t<name>person</name><pose>Unspecified</pose>\n"
      "\t\t<truncated>0</truncated><difficult>0</difficult>\n"
      "\t\t<bndbox><xmin>174</xmin><ymin>101</ymin><xmax>349</xmax>"
      "<ymax>351</ymax></bndbox>\n"
      "\t\t<part><name>head</name><bndbox><xmin>169</xmin></bndbox></part>\n"
      "\t</object>\n"
      "\t<object><bndbox>\n"
      "<ymax> 9.5 </ymax><xmin>45.70000076293945</xmin><ymin>1</ymin>"
      "<xmax>1e2</xmax></bndbox><difficult>1</difficult>"
      "<name> R&amp;D &lt;caf\xc3\xa9&gt; </name></object>\n"
      "</annotation>\n");
  EXPECT_EQ(file.file_name, "2007_000027.jpg");
  EXPECT_EQ(file.width, 486);
  EXPECT_EQ(file.height, 500);
  ASSERT_EQ(file.objects.size(), 2u);
  EXPECT_EQ(file.objects[0].name, "person");
  EXPECT_EQ(file.objects[0].xmin, 174);
  EXPECT_EQ(file.objects[0].ymin, 101);
  EXPECT_EQ(file.objects[0].xmax, 349);
  EXPECT_EQ(file.objects[0].ymax, 351);
  EXPECT_FALSE(file.objects[0].difficult);
  EXPECT_EQ(file.objects[0].line, 6u);
  EXPECT_EQ(file.objects[1].name, "R&D <caf\xc3\xa9>");
  EXPECT_EQ(file.objects[1].xmin, 45.70000076293945);
  EXPECT_EQ(file.objects[1].xmax, 100);
  EXPECT_EQ(file.objects[1].ymax, 9.5);
  EXPECT_TRUE(file.objects[1].difficult);
  EXPECT_EQ(file.objects[1].line, 12u);
}

TEST(Voc, AllowsMissingSizeAndName) {
  const VocFile file = parse("\xef\xbb\xbf<?xml version='1.0'?><annotation/>");
  EXPECT_EQ(file.file_name, "");
  EXPECT_EQ(file.width, 0);
  EXPECT_TRUE(file.objects.empty());
}

TEST(Voc, NamesTheLineThatIsWrong) {
  EXPECT_EQ(
      fault(with_object("<bndbox/>")),
      "a.xml:3: the object has no name; expected the name of its class. "
      "Correct this line of the file.");
  EXPECT_EQ(
      fault(with_object("<name>cat</name><polygon/>")),
      "a.xml:3: the object 'cat' has no 'bndbox'; expected one with xmin, "
      "ymin, xmax and ymax. Correct this line of the file.");
  EXPECT_EQ(
      fault(with_object("<name>cat</name>\n\n<bndbox><xmin>1</xmin></bndbox>")),
      "a.xml:5: the element 'ymin' is missing in 'bndbox'; expected a number. "
      "Correct this line of the file.");
  EXPECT_EQ(
      fault(with_object("<name>cat</name><bndbox>\n<xmin>1px</xmin></bndbox>")),
      "a.xml:4: 'xmin' is '1px'; expected a number. Correct this line of the "
      "file.");
  EXPECT_EQ(
      fault(with_object(
          "<name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax>"
          "<ymax>2</ymax></bndbox>\n<difficult>yes</difficult>")),
      "a.xml:4: 'difficult' is 'yes'; expected 0 or 1. Correct this line of "
      "the file.");
  EXPECT_EQ(
      fault("<annotation><size>\n<width>-5</width></size></annotation>"),
      "a.xml:2: the width is '-5'; expected a number of pixels, or 0 if it is "
      "unknown. Correct this line of the file.");
}

TEST(Voc, RejectsOtherXmlFiles) {
  EXPECT_EQ(
      fault("<html>\n</html>"),
      "a.xml:1: the document is a 'html'; expected an 'annotation', as in "
      "Pascal VOC. Correct this line of the file.");
  EXPECT_EQ(
      fault(""),
      "a.xml:1: the XML is damaged: No document element found. Correct this "
      "line of the file.");
  EXPECT_EQ(
      fault("<annotation>\n<object>\n<name>cat</name"),
      "a.xml:3: the XML is damaged: Error parsing end element tag. Correct "
      "this line of the file.");
  EXPECT_EQ(
      fault("<annotation><filename>\xff</filename></annotation>"),
      "a.xml: is not UTF-8 text. Convert the file to UTF-8.");
}

// "Billion laughs": each entity expands to ten of the previous one.
TEST(Voc, ExpandsNoEntities) {
  const VocFile file = parse(
      "<!DOCTYPE a [<!ENTITY a 'aaa'><!ENTITY b '&a;&a;&a;'>]>"
      "<annotation><filename>&b;</filename></annotation>");
  EXPECT_EQ(file.file_name, "&b;");
}

TEST(Voc, HandlesAnyNestingWithoutRecursion) {
  std::string text = "<annotation>";
  for (int i = 0; i < 300'000; ++i) text += "<a>";
  EXPECT_NE(fault(text).find("the XML is damaged"), std::string::npos);
  for (int i = 0; i < 300'000; ++i) text += "</a>";
  EXPECT_TRUE(parse(text + "</annotation>").objects.empty());
}

}  // namespace
}  // namespace tern::voc_test
