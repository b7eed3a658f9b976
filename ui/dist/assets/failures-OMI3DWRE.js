import{g as a}from"./chunk-RLH3V6A7.js";function e(){return a("main",{class:"page",children:a("header",{class:"page-head",children:a("h1",{children:"Failures"})})})}export{e as Failures};
